#!/bin/bash
# What a container of this image is: `master`, `worker MASTER`, `object-store`, or any other command, for a driver.
set -euo pipefail
deploy=org.apache.spark.deploy
SPARK_HOME=$(python -c 'import importlib.util as u, pathlib as p; print(p.Path(u.find_spec("pyspark").origin).parent)')
export SPARK_HOME
case "${1:-}" in
  master) exec spark-class $deploy.master.Master --host "${SPARK_MASTER_HOST:-spark-master}" --port 7077 --webui-port 8080 ;;
  worker) exec spark-class $deploy.worker.Worker --cores 1 --memory 1g --work-dir /home/keyedwm/work "$2" ;;
  object-store) exec python -I -W ignore /opt/object-store-server.py /opt/object-store 0.0.0.0 9000 keyedwm ;;
  *) exec "$@" ;;
esac
