"""``python -m haibun.spec`` prints the JSON schema of job files: what docs/job.schema.json holds."""

import json

from haibun.spec.job import schema

print(json.dumps(schema(), indent=2))
