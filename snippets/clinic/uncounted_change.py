# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# ///
"""Go back through a graph whose weight has changed: an error, or a wrong gradient?"""

import torch


def second_gradient(**options) -> dict:
    """Of weight * x for x, before and after a step of Adam with these options.

    It is the weight of the time of the product: 2 both times.
    """
    weight = torch.nn.Parameter(torch.tensor(2.0))
    x = torch.tensor(3.0, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.5, **options)
    product = weight * x
    (first,) = torch.autograd.grad(product, x, retain_graph=True)
    weight.grad = torch.ones(())
    adam.step()
    result = {"first": first.item(), "weight": weight.item()}
    try:
        (second,) = torch.autograd.grad(product, x)
        result["second"] = second.item()
    except RuntimeError as error:
        result["error"] = str(error).split(": [")[0]
    return result


def main() -> dict:
    results = {"plain": second_gradient(), "fused": second_gradient(fused=True)}
    for name, result in results.items():
        print(name, result)
    return results


if __name__ == "__main__":
    main()
