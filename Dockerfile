# Drivers and executors of Spark with this package and its compiled kernels, for Kubernetes and other clusters:
#     make wheel && docker build -t spark-cep .
# The Python must be the one that built the wheel; otherwise `cep warm` compiles, for the machine that builds only.
ARG SPARK=4.1.1
ARG PYTHON=3.11
FROM apache/spark:${SPARK} AS spark

FROM python:${PYTHON}-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends \
        gosu libnss-wrapper openjdk-17-jre-headless procps tini && \
    rm -rf /var/lib/apt/lists/* && \
    ln -s /usr/lib/jvm/java-17-openjdk-* /usr/lib/jvm/default && \
    useradd --system --uid 185 --user-group --create-home spark
COPY --from=spark --chown=185:185 /opt/spark /opt/spark
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
ENV JAVA_HOME=/usr/lib/jvm/default SPARK_HOME=/opt/spark PATH=/opt/spark/bin:$PATH \
    PYSPARK_PYTHON=/usr/local/bin/python PYSPARK_DRIVER_PYTHON=/usr/local/bin/python

# Kernels are valid for the versions of numba and numpy that the lock has.
COPY requirements.lock dist/*.whl /tmp/wheel/
RUN grep -o '^[a-zA-Z][^ ]*==[^ ]*' /tmp/wheel/requirements.lock > /tmp/wheel/constraints.txt && \
    pip install --no-cache-dir --constraint /tmp/wheel/constraints.txt /tmp/wheel/*.whl pandas && \
    rm -rf /tmp/wheel && cep warm

USER 185
WORKDIR /opt/spark/work-dir
ENTRYPOINT ["/opt/entrypoint.sh"]
