"""A pipeline as an ordinary PySpark application: `spark-submit --master URL submit.py CONFIGURATION.yaml`."""

import sys

from headrace.cli.entry import main

sys.argv[1:1] = ["pipeline", "run"]
main()
