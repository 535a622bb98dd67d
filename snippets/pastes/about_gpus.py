"""What pycuda reads of each GPU; no context is made, no memory taken."""

import pycuda.driver as driver


def about_gpus():
    driver.init()
    gpus = [driver.Device(index) for index in range(driver.Device.count())]
    facts = []
    for gpu in gpus:
        attributes = gpu.get_attributes().items()
        facts.append({str(name): int(value) for name, value in attributes})
        facts[-1] |= {"name": gpu.name(), "memory, bytes": gpu.total_memory()}
    return facts
