"""CUDA, imitated on the CPU: streams, events, graphs, an allocator, a profile, a clock, NVML and pycuda.

A kernel is an operation on a tensor that was made with `device="cuda"`. It is done at once, unless the
GPU is `late`: then it is put off until somebody waits for its stream, and the streams named by `first`
("main" or "side") run as far as they can before the others. What is right is right in either order.

Time passes only where something is launched, waited for or slept: `time.perf_counter` reads this clock.
"""

import contextlib
import importlib
import sys
import threading
import time
import weakref
from collections import deque
from functools import partial
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from snippets.timing import lanes

HZ = 2_000_000_000
H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    clock_rate=HZ // 1000,
    total_memory=2**40,
    L2_cache_size=60 * 2**20,
    memory_clock_rate=3_201_000,
    memory_bus_width=6016,
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_multiprocessor=233472,
)
#: What CUDA calls some kernels.
NAMES = {
    "fill_": "void at::native::vectorized_elementwise_kernel<4",
    "sum": "void at::native::reduce_kernel<512",
}
#: What cannot be told before the GPU has computed it.
READS = {
    "item",
    "tolist",
    "equal",
    "allclose",
    "nonzero",
    "numpy",
    "__bool__",
    "__float__",
    "__int__",
    "__repr__",
}


class Mark:
    """A place in the queue of a stream."""

    def __init__(self, stream: "Stream"):
        self.stream, self.done = stream, False
        self.at = max(stream.end, stream.gpu.now)
        stream.put(self.pass_by)

    def pass_by(self) -> None:
        self.done = True


class Event:
    """One that was never recorded is done."""

    def __init__(self, gpu: "FakeCuda"):
        self.gpu = gpu
        self.mark: Mark | None = None

    def record(self, stream: "Stream | None" = None) -> None:
        self.mark = Mark(stream or self.gpu.current)

    def query(self) -> bool:
        return self.mark is None or (self.mark.done and self.mark.at <= self.gpu.now)

    def synchronize(self) -> None:
        if self.mark:
            self.gpu.wait(self.mark.stream, self.mark)

    def elapsed_time(self, end: "Event") -> float:
        return 1e3 * (end.mark.at - self.mark.at)


class Stream:
    """A queue of work, and the time at which the GPU will be done with it."""

    def __init__(self, gpu: "FakeCuda", handle: int):
        self.gpu, self.cuda_stream = gpu, handle
        self.device = torch.device(gpu.device)  # where its tensors really are
        self.name = "side" if handle else "main"
        self.queue, self.end = deque(), 0.0

    def put(self, work, seconds: float = 0.0) -> None:
        self.end = max(self.end, self.gpu.now) + seconds
        self.queue.append(work)
        if not self.gpu.late:
            self.run()

    def run(self, until: Mark | None = None) -> None:
        with torch._C.DisableTorchFunction():
            while self.queue and not (until and until.done):
                self.queue.popleft()()

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.gpu)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        mark = event.mark  # it may be recorded again
        if mark:
            self.end = max(self.end, mark.at)
            self.put(lambda: mark.stream.run(until=mark))

    def wait_stream(self, other: "Stream") -> None:
        self.gpu.diary.append(f"{self.name} waits for {other.name}")
        self.wait_event(other.record_event())

    def is_capturing(self) -> bool:
        return self.gpu.graph is not None

    def synchronize(self) -> None:
        self.gpu.wait(self)

    def query(self) -> bool:
        return not self.queue and self.end <= self.gpu.now


class Graph:
    """What a capture recorded; a replay runs it again on the same tensors."""

    def __init__(self, gpu: "FakeCuda"):
        self.gpu, self.operations, self.seconds = gpu, [], 0.0

    def replay(self) -> None:
        self.gpu.launch(self.seconds, self.run)

    def run(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, results in self.operations:
                again = tree_leaves(func(*args, **kwargs))
                for old, new in zip(results, again, strict=False):  # none of what only changes a tensor
                    old.copy_(new)

    def pool(self) -> int:
        return 0


class Recorder(TorchDispatchMode):
    """Writes each operation down, also of the backward pass; the replay alone changes tensors."""

    def __init__(self, operations: list):
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if func._schema.is_mutable:
            self.operations.append((func, args, kwargs, []))
            return kwargs.get("out", args[0]) if func._schema.returns else None
        result = func(*args, **kwargs)
        if not func.is_view:
            fixed = [leaf.detach() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.operations.append((func, args, kwargs, fixed))
        return result


class FakeCuda(TorchFunctionMode):
    """A GPU, or several with one main stream. `most` limits the sides of new tensors; without `values` they
    have a size and no content.
    """

    def __init__(self, late=False, first="side", most: int | None = None, values=True, gpus=1):
        super().__init__()
        self.late, self.first, self.most, self.gpus = late, first, most, gpus
        self.device = "cpu" if values else "meta"
        self.counts = late or not values  # memory
        self.index = 0  # of the current GPU
        self.now = 0.0
        self.launch_s = 10e-6  # that the CPU takes for a launch
        self.kernel_s = {}  # that the GPU takes for a kernel, by name; else a microsecond
        self.room = 1000  # for kernels in the queue
        self.ends = deque()  # of those in the queue
        self.diary = []  # who waited for whom
        self.log = []  # what a profiler sees
        self.streams = [Stream(self, 0)]
        self.current = self.streams[0]
        self.graph: Graph | None = None  # that is captured
        self.blocks = []
        self.cap = float("inf")  # of their bytes
        self.retries = 0
        self.allocations = 0
        self.peak = {"reserved": 0, "allocated": 0}

    # Which GPU

    def properties(self, device=None) -> SimpleNamespace:
        index = self.index if device is None else device
        return SimpleNamespace(**vars(H200), uuid=f"uuid-{index}")

    def choose(self, index: int) -> None:
        self.index = index

    @contextlib.contextmanager
    def chosen(self, index: int):
        before = self.index
        self.index = index
        yield
        self.index = before

    # Streams and time

    def new_stream(self, device=None, priority: int = 0) -> Stream:
        self.streams.append(Stream(self, 1 + (len(self.streams) - 1) % 32))
        return self.streams[-1]

    @contextlib.contextmanager
    def on(self, stream: Stream | None):
        before = self.current
        self.current = stream or before
        yield
        self.current = before

    def launch(
        self, seconds: float = 0.0, work=lambda: None, name="kernel", cpu_s: float | None = None
    ) -> None:
        """Give the current stream a kernel of so many seconds; if the queue is full, wait for its first."""
        if self.graph:
            self.graph.seconds += seconds
            work()
            return
        start = self.now
        self.now += self.launch_s if cpu_s is None else cpu_s
        while self.ends and self.ends[0] <= self.now:
            self.ends.popleft()
        if len(self.ends) >= self.room:
            self.now = self.ends[0]
        self.log.append(("CPU", "cudaLaunchKernel", start, self.now - start))
        self.current.put(work, seconds)
        self.ends.append(self.current.end)
        self.log.append(
            (self.current.cuda_stream, NAMES.get(name, name), self.current.end - seconds, seconds)
        )

    def wait(self, stream: Stream, mark: Mark | None = None) -> None:
        """Let the CPU wait for a stream, or for a mark in it; meanwhile those who come first go on."""
        favoured = self.streams[:0:-1] if self.first == "side" else self.streams[:1]
        for other in favoured:
            other.run()
        stream.run(until=mark)
        start = self.now
        self.now = max(self.now, mark.at if mark else stream.end)
        self.log.append(("CPU", "cudaStreamSynchronize", start, self.now - start))

    def synchronize(self, device=None) -> None:
        """Wait for all streams; who names a GPU is written down."""
        if device is not None:
            self.diary.append(f"wait {device}")
        for stream in self.streams if self.first == "main" else self.streams[::-1]:
            self.wait(stream)

    def read_clock(self) -> float:
        self.now += 1e-8  # so that nothing takes no time at all
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @contextlib.contextmanager
    def capture(self, graph: Graph, pool=None, stream: Stream | None = None, capture_error_mode="global"):
        self.graph = graph
        try:
            with self.on(stream), Recorder(graph.operations):
                yield
        finally:
            self.graph = None

    def profiled(self, work) -> list:
        """Events as the profiler gives them, of the second of two calls."""
        work()
        self.synchronize()
        self.log.clear()
        work()
        rows = sorted(self.log, key=lambda row: row[2])
        self.synchronize()
        kinds = torch.autograd.DeviceType
        events = []
        for where, name, start, seconds in rows:
            on_gpu = where != "CPU"
            event = SimpleNamespace(name=name, thread=1, is_user_annotation=False, device_index=0)
            event.time_range = SimpleNamespace(
                start=1e6 * start, elapsed_us=lambda seconds=seconds: 1e6 * seconds
            )
            event.device_type = kinds.CUDA if on_gpu else kinds.CPU
            event.device_resource_id = 7 + where if on_gpu else None
            events.append(event)
        return events

    # Memory

    def reserved(self) -> int:
        return sum(block.size for block in self.blocks)

    def allocated(self) -> int:
        return sum(block.size for block in self.blocks if not block.free)

    def empty_cache(self) -> None:
        self.synchronize()
        self.blocks = [block for block in self.blocks if not block.free]

    def limit(self, fraction: float) -> None:
        self.cap = fraction * H200.total_memory

    def forget_peak(self) -> None:
        self.peak = {"reserved": self.reserved(), "allocated": self.allocated()}

    def fits(self, block: SimpleNamespace, size: int) -> bool:
        if not block.free or block.size != size or block.stream != self.current.cuda_stream:
            return False
        return all(mark.done for mark in block.marks)

    def new_block(self, size: int) -> SimpleNamespace:
        if self.reserved() + size > self.cap:
            self.retries += 1
            self.empty_cache()
        if self.reserved() + size > self.cap:
            words = "CUDA out of memory. Process 1 has 2 GiB memory in use. 2 GiB allowed."
            raise torch.OutOfMemoryError(words)
        self.allocations += 1
        memory = torch.full((size,), 7, dtype=torch.uint8, device=self.device)
        block = SimpleNamespace(size=size, memory=memory, stream=self.current.cuda_stream)
        self.blocks.append(block)
        return block

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """A tensor in a free block of the current stream, or in a new one, until Python drops it."""
        size = like.nbytes
        block = next((block for block in self.blocks if self.fits(block, size)), None)
        if block is None:
            block = self.new_block(size)
        block.free = False
        block.users = []
        block.marks = []
        for name, now in {"reserved": self.reserved(), "allocated": self.allocated()}.items():
            self.peak[name] = max(self.peak[name], now)
        tensor = block.memory.view(like.dtype).view(like.shape)
        weakref.finalize(tensor, self.release, block)
        return marked(tensor, gpu=True, block=block)

    def release(self, block: SimpleNamespace) -> None:
        block.free = True
        block.marks = [Mark(stream) for stream in block.users]

    def record_stream(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.diary.append(f"used on {stream.name}")
        if getattr(tensor, "block", None):
            tensor.block.users.append(stream)

    # Operations

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func.__name__
        if name == "__iter__":
            return iter(self.__torch_function__(torch.unbind, types, args))
        if name == "is_pinned":
            return is_pinned(args[0])
        if name == "pin_memory":
            return marked(args[0].clone(), pinned=True)
        if name == "copy_":
            return self.copied(*args, **kwargs)
        target = device_asked(name, args, kwargs)
        if target:
            return self.moved(args[0], target, kwargs.get("non_blocking", False))
        asks_pinned = kwargs.pop("pin_memory", False)
        made = names_gpu(kwargs.get("device"))
        if made:
            kwargs["device"] = self.device
        if made or asks_pinned:
            args = [limited(arg, self.most) for arg in args]
        if made or any(map(on_gpu, tree_leaves((args, kwargs)))):
            return self.kernel(func, name, args, kwargs)
        result = func(*args, **kwargs)
        return marked(result, pinned=True) if asks_pinned else result

    def kernel(self, func, name: str, args, kwargs: dict):
        """An operation on the GPU; one that is put off keeps no tensor alive: it knows addresses only."""
        if name in READS:
            self.wait(self.current)
            return func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        own = (list(args), kwargs)
        if self.late:
            own = tree_map_only(torch.Tensor, torch.Tensor.detach, own)

        def compute():
            return func(*own[0], **own[1])

        changes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if changes or "out" in kwargs:
            self.launch(self.kernel_s.get(name, 1e-6), compute, name)
            return kwargs.get("out", args[0])
        result = compute()  # if it is put off, this tells its shape
        if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(result)):
            return result
        return tree_map_only(torch.Tensor, lambda tensor: self.placed(tensor, given, compute, name), result)

    def placed(self, result: torch.Tensor, given: list[torch.Tensor], compute, name: str) -> torch.Tensor:
        """The result of an operation on the GPU: a view of what was given, or computed by a kernel."""
        for tensor in given:
            if tensor.untyped_storage()._cdata == result.untyped_storage()._cdata:
                return marked(result, gpu=True, of=tensor, block=getattr(tensor, "block", None))
        if name.startswith("empty"):
            return self.allocate(result) if self.counts else marked(result, gpu=True)
        seconds = self.kernel_s.get(name, 1e-6)
        if not self.counts:
            self.launch(seconds, name=name)
            return marked(result, gpu=True)
        tensor = self.allocate(result)
        room = tensor.detach()
        source = compute if given else lambda: result  # random numbers are drawn once
        self.launch(seconds, lambda: room.copy_(source()), name)
        return tensor

    def moved(self, source: torch.Tensor, target: str, non_blocking: bool) -> torch.Tensor:
        """The tensor on that device: itself if it is there, else a copy."""
        if on_gpu(source) == (target == "cuda"):
            return source
        if self.counts and target == "cuda":
            result = self.allocate(source)
        elif isinstance(source, torch.nn.Parameter):
            return marked(source, gpu=target == "cuda")
        else:
            result = marked(torch.full_like(source, -1), gpu=target == "cuda", pinned=non_blocking)
        return self.copied(result, source, non_blocking)

    def copied(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        """Write one into the other. The CPU waits, unless it need not; pageable memory is read at once."""
        if not on_gpu(target) and not on_gpu(source):
            return target.copy_(source)
        pageable = [tensor for tensor in (target, source) if not on_gpu(tensor) and not is_pinned(tensor)]
        room, given = target.detach(), source.detach()
        if any(tensor is source for tensor in pageable):
            given = given.clone()
        self.launch(1e-6, lambda: room.copy_(given), "Memcpy")
        between_gpus = on_gpu(target) and on_gpu(source)
        if not (non_blocking or between_gpus) or any(tensor is target for tensor in pageable):
            self.wait(self.current)
        return target


def on_gpu(leaf) -> bool:
    return getattr(leaf, "gpu", False)


def names_gpu(device) -> bool:
    """Whether it is "cuda", "cuda:1", a device of that type, or the number of a GPU."""
    return isinstance(device, int) or str(device).startswith("cuda")


def is_pinned(tensor: torch.Tensor) -> bool:
    return getattr(tensor, "pinned", False)


def marked(tensor: torch.Tensor, **marks) -> torch.Tensor:
    """The tensor, with these attributes of Python."""
    vars(tensor).update(marks)
    return tensor


def device_asked(name: str, args, kwargs: dict) -> str:
    """The kind of device that a tensor is asked to move to, or nothing."""
    if name in ("cuda", "cpu"):
        return name
    if name == "to":
        for target in (*args[1:], kwargs.get("device")):
            if isinstance(target, (str, torch.device)) and torch.device(target).type in ("cuda", "cpu"):
                return torch.device(target).type
    return ""


def limited(shape, most: int | None):
    """A side, or a shape, of at most so much; anything else as it is."""
    if most and isinstance(shape, tuple):
        return tuple(limited(side, most) for side in shape)
    if most and isinstance(shape, int):
        return min(shape, most)
    return shape


@contextlib.contextmanager
def imitated(**options):
    """Put a `FakeCuda` in the place of CUDA."""
    gpu = FakeCuda(**options)
    vars(FakeCuda)["new_stream"].priority_range = lambda: (0, -3)
    fakes = {
        "Stream": gpu.new_stream,
        "Event": lambda enable_timing=False: Event(gpu),
        "graph_pool_handle": lambda: 0,
        "CUDAGraph": lambda: Graph(gpu),
        "graph": gpu.capture,
        "current_stream": lambda device=None: gpu.current,
        "stream": gpu.on,
        "synchronize": gpu.synchronize,
        "_sleep": lambda cycles: gpu.launch(cycles / HZ, name="spin_kernel"),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: gpu.gpus,
        "current_device": lambda: gpu.index,
        "set_device": gpu.choose,
        "device": gpu.chosen,
        "default_stream": lambda device=None: gpu.streams[0],
        "can_device_access_peer": lambda one, other: one > other,
        "get_device_properties": gpu.properties,
        "memory_allocated": gpu.allocated,
        "memory_reserved": gpu.reserved,
        "max_memory_allocated": lambda: gpu.peak["allocated"],
        "max_memory_reserved": lambda: gpu.peak["reserved"],
        "reset_peak_memory_stats": gpu.forget_peak,
        "memory_stats": lambda: {"num_alloc_retries": gpu.retries, "num_device_alloc": gpu.allocations},
        "mem_get_info": lambda: (H200.total_memory // 2, H200.total_memory),
        "set_per_process_memory_fraction": gpu.limit,
        "empty_cache": gpu.empty_cache,
        "is_current_stream_capturing": lambda: gpu.graph is not None,
    }
    # so that a build of PyTorch for the CPU and one for CUDA see the same GPU
    accelerator = {
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "is_available": lambda: True,
        "device_count": lambda: gpu.gpus,
        "current_device_index": lambda: gpu.index,
        "set_device_index": gpu.choose,
        "device_index": gpu.chosen,
        "current_stream": lambda device=None: gpu.current,
        "synchronize": gpu.synchronize,
        "memory_allocated": gpu.allocated,
        "memory_reserved": gpu.reserved,
        "empty_cache": gpu.empty_cache,
    }
    with pytest.MonkeyPatch.context() as patch, gpu:
        for name, fake in fakes.items():
            patch.setattr(torch.cuda, name, fake)
        for name, fake in accelerator.items():
            patch.setattr(torch.accelerator, name, fake)
        patch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True, raising=False)
        patch.setattr(torch.Tensor, "record_stream", lambda x, stream: gpu.record_stream(x, stream))
        patch.setattr(time, "perf_counter", gpu.read_clock)
        patch.setattr(time, "sleep", gpu.sleep)
        patch.setattr(lanes, "profiled", gpu.profiled)
        adam = sys.modules["torch.optim.adam"]
        patch.setattr(adam, "_get_capturable_supported_devices", lambda *args, **options: ["cpu"])
        if find_spec("triton"):  # builds for the CPU come without it
            triton = importlib.import_module("triton.runtime.driver").driver
            patch.setattr(triton, "_active", FakeTriton())
        yield gpu


class FakeTriton:
    """What Triton's `do_bench` asks its driver for, without a library of CUDA's."""

    def get_device_interface(self) -> ModuleType:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(H200.L2_cache_size, dtype=torch.uint8, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()


class FakeNvml:
    """`pynvml` on a machine of two GPUs, which it counts the other way round.

    It says so many times what holds the clock down, and then has lost the GPU.
    """

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_NVLINK_MAX_LINKS, NVML_CLOCK_SM, NVML_FI_DEV_POWER_INSTANT, NVML_SUCCESS = 20, 1, 186, 0

    def __init__(self, answers: int = 1, knows_power_now: bool = True):
        self.answers, self.knows_power_now = answers, knows_power_now

    def nvmlInit(self) -> None:
        """Nothing to begin."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetIndex(self, handle: str) -> int:
        return {"GPU-uuid-0": 1, "GPU-uuid-1": 0}[handle]

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        if link >= 18:
            raise self.NVMLError("invalid argument")
        return int(handle == "GPU-uuid-0" or link < 4)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=151_000_000_000)

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1500

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 650_000

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=80)

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[SimpleNamespace]:
        assert fields == [self.NVML_FI_DEV_POWER_INSTANT]
        value = SimpleNamespace(uiVal=690_000)
        return [SimpleNamespace(nvmlReturn=0 if self.knows_power_now else 3, value=value)]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        self.answers -= 1
        if self.answers < 0:
            raise self.NVMLError("the GPU is lost")
        return 4 | 1


def new_module(name: str) -> Any:
    """An empty module; it is given what it has."""
    return ModuleType(name)


class FakePycuda:
    """pycuda on a machine of two GPUs: each thread's stack of contexts, kernels that know their blocks."""

    ATTRIBUTES: ClassVar = {
        "WARP_SIZE": 32,
        "CLOCK_RATE": 1_980_000,
        "COMPUTE_MODE": 0,
        "TEXTURE_PITCH_ALIGNMENT": 32,
    }

    def __init__(self):
        self.stacks, self.retained, self.threads = threading.local(), [], []
        self.driver, self.compiler = new_module("pycuda.driver"), new_module("pycuda.compiler")
        self.package = new_module("pycuda")
        self.package.driver, self.package.compiler = self.driver, self.compiler
        self.driver.init = lambda: None
        self.driver.Device = partial(self.device)
        vars(self.driver.Device)["count"] = lambda: 2
        self.driver.mem_get_info = lambda: (self.top() + 1, 100)
        self.driver.Stream = lambda flags=0: SimpleNamespace(handle=7 + flags, context=self.top())
        self.driver.mem_alloc = lambda size: SimpleNamespace(size=size, context=self.top())
        self.driver.memcpy_dtoh = lambda host, address: None
        self.compiler.SourceModule = lambda *args, **options: SimpleNamespace(get_function=self.kernel)

    @property
    def stack(self) -> list[int]:
        """The contexts, by GPU, that this thread has pushed."""
        return vars(self.stacks).setdefault("of_thread", [])

    def top(self) -> int:
        """The GPU of the context that pycuda works in."""
        if not self.stack:
            raise RuntimeError("explicit_context_dependent failed: invalid device context")
        return self.stack[-1]

    def device(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(
            name=lambda: H200.name,
            compute_capability=lambda: (H200.major, H200.minor),
            multiprocessor_count=H200.multi_processor_count,
            l2_cache_size=H200.L2_cache_size,
            total_memory=lambda: H200.total_memory,
            pci_bus_id=lambda: f"0000:0{index}:00.0",
            get_attributes=lambda: dict(self.ATTRIBUTES),
            retain_primary_context=lambda: self.retain(index),
        )

    def retain(self, index: int) -> SimpleNamespace:
        self.retained.append(index)
        return SimpleNamespace(push=lambda: self.stack.append(index), pop=lambda: self.stack.pop())

    def kernel(self, name: str):
        """A kernel that doubles what its threads reach; without a size, each thread has an element."""
        self.top()

        def twice(x, n=None, grid=(1, 1), block=None, stream=None):
            threads = grid[0] * block[0] * block[1]
            self.threads.append(threads)
            reached = threads if n is None else min(threads, int(n))
            x.view(-1)[:reached] *= 2

        return twice
