"""The GPUs of a worker as it shows them, through the real `pynvml` and a stand-in for the driver's library."""

from pathlib import Path

import pytest
import redis

from tests.prometheus_server import free_port
from tests.scraping import families, value
from tests.servers import Server
from tests.stand_in_nvml import COMPILER, GIB, build_nvml
from tests.waiting import wait_until
from tests.worker_process import started_worker
from worker.options import SimOptions

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler for the stand-in of NVML")
GPU = "bakehouse_gpu_"
NVIDIA = Path("/dev/nvidiactl")


@needs_compiler
def test_gpus_are_shown_with_their_peak(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    port = free_port()
    library = build_nvml(tmp_path)
    with started_worker(
        valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port), LD_LIBRARY_PATH=library
    ):
        found = families(port, prefix=GPU)
        labels = {name: [sample.labels for sample in family.samples] for name, family in found.items()}
        both = [{"gpu": "0"}, {"gpu": "1"}]
        assert labels == {
            "bakehouse_gpu_use_ratio": both,
            "bakehouse_gpu_memory_used_bytes": both,
            "bakehouse_gpu_memory_peak_bytes": both,
            "bakehouse_gpu_memory_total_bytes": both,
            "bakehouse_gpu_power_watts": [{"gpu": "0"}],
        }
        assert value(port, "bakehouse_gpu_use_ratio", gpu="1") == 0.75
        assert value(port, "bakehouse_gpu_power_watts", gpu="0") == 512.5
        assert value(port, "bakehouse_gpu_memory_total_bytes", gpu="0") == 80 * GIB
        wait_until(
            lambda: value(port, "bakehouse_gpu_memory_used_bytes", gpu="0") == 2 * GIB,
            timeout_s=15,
            description="what was at the peak is free again",
        )
        assert value(port, "bakehouse_gpu_memory_peak_bytes", gpu="0") == 6 * GIB


@needs_compiler
@pytest.mark.parametrize(
    ("visible", "gpus"), [("1", ["1"]), ("GPU-1111", ["1"]), ("1,0", ["1", "0"]), ("", []), ("7", [])]
)
def test_a_worker_shows_its_own_gpus_alone(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path, visible: str, gpus: list[str]
) -> None:
    port = free_port()
    with started_worker(
        valkey_server,
        tmp_path / "log",
        sim=SimOptions(),
        BAKEHOUSE_METRICS_PORT=str(port),
        LD_LIBRARY_PATH=build_nvml(tmp_path),
        CUDA_VISIBLE_DEVICES=visible,
    ):
        found = families(port, prefix=GPU)
    shown = [sample.labels["gpu"] for name in found if name.endswith("use_ratio") for sample in found[name].samples]
    assert shown == gpus
    assert bool(found) == bool(gpus), "no family without a GPU"


def test_without_a_driver_there_is_no_family(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    if NVIDIA.exists():
        pytest.skip("this machine has a driver")
    port = free_port()
    with started_worker(valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port)):
        assert families(port)
        assert not families(port, prefix=GPU)
