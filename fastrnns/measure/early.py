"""Starting CUDA while torch is still being imported: neither needs the other, and together they take seconds."""

from __future__ import annotations

import contextlib
import ctypes
import threading

DRIVER = "libcuda.so.1"


def start_cuda(index: int) -> threading.Thread:
    """Initialise the driver and a GPU's primary context (CUDA driver API, 6.1 and 6.7) in a thread.

    The context is the one that torch will use; calls through ctypes hold no lock of Python's. Whatever goes
    wrong is left for torch to meet, who says it better.
    """

    def work() -> None:
        with contextlib.suppress(OSError, AttributeError):
            driver = ctypes.CDLL(DRIVER)
            device, context = ctypes.c_int(), ctypes.c_void_p()
            if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
                driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)

    thread = threading.Thread(target=work, name="early-cuda", daemon=True)
    thread.start()
    return thread
