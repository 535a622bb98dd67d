"""Datasheet figures of GPUs: what no measurement may beat."""

#: Dense rates in TFLOP/s, bandwidths in GB/s per direction, memory in GB; all without sparsity.
DATASHEETS = {
    # NVIDIA H200 Tensor Core GPU datasheet (SXM; its matrix rates are printed with sparsity, halved here);
    # SM count: NVIDIA H100 architecture white paper, GH100 SXM5; PCIe 5.0 x16: 32 GT/s x 16 lanes x 128/130 / 8.
    "NVIDIA H200": {
        "bf16_tflop_s": 989,
        "tf32_tflop_s": 494,
        "fp32_tflop_s": 67,
        "hbm_gb_s": 4800,
        "memory_gb": 141,
        "pcie_gb_s": 63,
        "nvlink_gb_s": 450,
        "sms": 132,
    },
}


def ceilings(machine: dict) -> dict:
    """Datasheet of a recorded machine's GPUs; empty where there is none or none is known."""
    return DATASHEETS.get(machine["gpus"][0]["name"], {}) if machine.get("gpus") else {}
