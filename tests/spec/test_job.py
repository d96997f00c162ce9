"""Job files: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.core.vocabulary import Job, Locality, Shape
from haibun.spec import JobSpec, SpecError, expand, load_job_file, parse_jobs, schema

REPOSITORY = Path(__file__).resolve().parents[2]

FULL = """\
name: gpt-small
tenant: research
priority: 5
resources:
  devices: 8
  device_type: [h100, a100]
  cpus: 4
  memory: 16GiB
num_nodes: 2
env: {LR: "0.10", SEED: 7}
setup: pip install -r requirements.txt
run: [python, train.py, --steps, "1000"]
workdir: /home/me/gpt
walltime: 2h30m
retries: 3
total_steps: 1e6
model: gpt
checkpoint_every: 10m
hang_after: 90s
preemptible: false
labels: {paper: sia}
"""


def test_a_full_spec_becomes_a_core_job() -> None:
    [spec] = parse_jobs(FULL)
    assert spec.to_core("j1", ["j0"]) == Job(
        id="j1",
        shapes=(Shape(8, "h100", Locality.SITE, 2), Shape(8, "a100", Locality.SITE, 2)),
        name="gpt-small",
        tenant="research",
        priority=5,
        cpus=4.0,
        memory=16 << 30,
        model="gpt",
        total_steps=1e6,
        walltime=9000.0,
        retries=3,
        depends_on=("j0",),
        preemptible=False,
    )
    assert spec.env == {"LR": "0.10", "SEED": "7"}
    assert (spec.checkpoint_every, spec.hang_after) == (600.0, 90.0)


def test_run_alone_is_enough() -> None:
    [spec] = parse_jobs("run: python train.py\n")
    assert spec.to_core("j") == Job(id="j", shapes=(Shape(1),))
    assert spec.processes_on(4) == 4


def test_processes_go_by_device_or_by_node() -> None:
    assert parse_jobs("run: x\nprocesses_per_device: 2\n")[0].processes_on(4) == 8
    assert parse_jobs("run: x\nprocesses_per_node: 1\n")[0].processes_on(4) == 1


def test_a_spec_survives_storage() -> None:
    for text in (FULL, "run: x\n", "run: x {index}\narray: 0-3%2\n"):
        [spec] = parse_jobs(text)
        assert JobSpec.from_json(spec.to_json()) == spec


def test_several_documents_are_several_jobs_and_may_share_an_anchor() -> None:
    text = (
        "name: a\nrun: x\n---\n---\nname: b\nrun: y\ndepends_on: [a]\n"
        "env: &e {A: '1'}\nlabels: {<<: *e, B: '2'}\n"
    )
    specs = load_job_file(text)
    assert [s.name for s in specs] == ["a", "b"]
    assert specs[1].labels == {"A": "1", "B": "2"}


def test_yaml_words_of_old_stay_text_in_env() -> None:
    [spec] = parse_jobs("run: x\nenv: {A: yes, B: off, C: 010, D: 1_000, E: 0x10, F: 12:30}\n")
    assert spec.env == {"A": "yes", "B": "off", "C": "010", "D": "1_000", "E": "0x10", "F": "12:30"}


@pytest.mark.parametrize(
    ("array", "indices", "limit"),
    [
        ("0-3", [0, 1, 2, 3], None),
        ("0-3%2", [0, 1, 2, 3], 2),
        ("0-8:4, 11", [0, 4, 8, 11], None),
        ("5", [5], None),
        ("[3, 1]", [1, 3], None),
    ],
)
def test_an_array_names_its_tasks(array: str, indices: list[int], limit: int | None) -> None:
    [spec] = parse_jobs(f"run: x\narray: {array}\n")
    assert spec.array is not None
    assert (spec.array.indices, spec.array.limit) == (indices, limit)


def test_the_index_is_replaced_everywhere_but_in_variables_of_the_shell() -> None:
    [spec] = parse_jobs(
        "name: sweep\narray: 2-3\nworkdir: /runs/{index}\nenv: {OUT: 'o{index}'}\n"
        "run: |\n  index=7\n  echo {index} ${index} $HAIBUN_ARRAY_INDEX\n"
    )
    tasks = expand(spec)
    assert [t.name for t in tasks] == ["sweep[2]", "sweep[3]"]
    assert tasks[0].run == "index=7\necho 2 ${index} $HAIBUN_ARRAY_INDEX\n"
    assert tasks[1].env == {"OUT": "o3", "HAIBUN_ARRAY_INDEX": "3"}
    assert tasks[1].workdir == "/runs/3"
    assert [t.to_core(f"j{i}").name for i, t in enumerate(tasks)] == ["sweep[2]", "sweep[3]"]
    assert JobSpec.from_json(tasks[0].to_json()) == tasks[0]
    with pytest.raises(ValueError, match=r"expand\(\) it first"):
        spec.to_core("j")


def test_a_job_that_is_no_array_keeps_its_braces() -> None:
    [spec] = parse_jobs("run: awk '{index}'\n")
    assert expand(spec) == [spec]


R = "run: x\n"
BAD = [
    # (YAML, line, column, field, words)
    (R + "priorty: 3\n", 2, 1, "priorty", "is not a known field; did you mean 'priority'?"),
    (
        R + "resources:\n  gpus: 3\n",
        3,
        3,
        "resources.gpus",
        "is not a known field; it is called 'devices' here",
    ),
    (R + "resources:\n  divices: 3\n", 3, 3, "resources.divices", "did you mean 'devices'"),
    ("name: a\n", 1, 1, "run", "is required"),
    (R + "resources: {devices: 0}\n", 2, 22, "resources.devices", "must be 1 or more, not 0"),
    (R + "resources: {devices: -2}\n", 2, 22, "resources.devices", "must be 1 or more, not -2"),
    (R + "resources: {devices: 1.5}\n", 2, 22, "resources.devices", "must be a whole number, not 1.5"),
    (
        R + "resources: {devices: two}\n",
        2,
        22,
        "resources.devices",
        "must be a whole number, not the text 'two'",
    ),
    (
        R + "resources: {devices: '2'}\n",
        2,
        22,
        "resources.devices",
        "must be a whole number, not the text '2'",
    ),
    (R + "resources: {devices: true}\n", 2, 22, "resources.devices", "must be a whole number, not true"),
    (R + f"resources: {{devices: {10**30}}}\n", 2, 22, "resources.devices", "100,000 or less"),
    (R + "resources: {cpus: .nan}\n", 2, 19, "resources.cpus", "must be a finite number"),
    (R + "resources: {cpus: -1}\n", 2, 19, "resources.cpus", "must be 0 or more"),
    (R + "resources: {cpus: .inf}\n", 2, 19, "resources.cpus", "or less|finite"),
    (R + "resources: {memory: 4Gb}\n", 2, 21, "resources.memory", "reads as bits; write GB"),
    (R + "resources: {memory: -4GiB}\n", 2, 21, "resources.memory", "is negative"),
    (R + "resources: {device_type: [a, a]}\n", 2, 26, "resources.device_type", "names a device type twice"),
    (R + "resources: 8\n", 2, 12, "resources", "must be a mapping of keys to values, not 8"),
    (
        R + "resources: {devices: 8}\nnum_nodes: 3\n",
        3,
        12,
        "num_nodes",
        "8 devices do not divide evenly among 3 nodes; ask for 9",
    ),
    (
        R + "resources: {devices: 8}\nnum_nodes: 2\nlocality: node\n",
        3,
        12,
        "num_nodes",
        "cannot be met with 'locality: node'",
    ),
    (R + "num_nodes: 0\n", 2, 12, "num_nodes", "must be 1 or more"),
    (R + "locality: rack\n", 2, 11, "locality", "must be one of 'node', 'site' or 'any'"),
    (R + "priority: high\n", 2, 11, "priority", "must be a whole number"),
    (R + "priority: 99999999999999999999\n", 2, 11, "priority", "1,000,000 or less"),
    (R + "walltime: 0\n", 2, 11, "walltime", "must be greater than 0"),
    (R + "walltime: -5m\n", 2, 11, "walltime", "negative"),
    (R + "walltime: 2h30\n", 2, 11, "walltime", "write for instance 2h30m"),
    (R + "walltime: .nan\n", 2, 11, "walltime", "is not a number"),
    (R + "total_steps: 0\n", 2, 14, "total_steps", "must be greater than 0"),
    (R + "total_steps: .nan\n", 2, 14, "total_steps", "finite|greater"),
    (R + "retries: -1\n", 2, 10, "retries", "must be 0 or more"),
    (R + "preemptible: maybe\n", 2, 14, "preemptible", "must be true or false"),
    (R + "name: a\ndepends_on: [a]\n", 3, 13, "depends_on", "depends on itself"),
    (R + "depends_on: [b, b]\n", 2, 13, "depends_on", "names 'b' twice"),
    (R + "depends_on: b\n", 2, 13, "depends_on", "must be a list, not the text 'b'"),
    (R + "array: 5-1\n", 2, 8, "array", "runs backwards; write 1-5"),
    (R + "array: 0-9%0\n", 2, 8, "array", "after '%'"),
    (R + "array: a-b\n", 2, 8, "array", "write for instance 0-9"),
    (R + "array: 0-999999\n", 2, 8, "array", "at most 10,000"),
    (R + "array: 0-99999999999\n", 2, 8, "array", "the largest is"),
    (R + "array: []\n", 2, 8, "array", "must not be empty"),
    (R + "array: [1, 1]\n", 2, 8, "array", "index 1 twice"),
    (R + "array: [-1]\n", 2, 8, "array", "outside of 0"),
    (R + "env: {RANK: '0'}\n", 2, 7, "env.RANK", "is set by Haibun itself"),
    (R + "env: {HAIBUN_X: '0'}\n", 2, 7, "env.HAIBUN_X", "set by Haibun itself"),
    (R + "env: {LR: 1.10}\n", 2, 11, "env.LR", "put the value in quotes"),
    (R + "env: {A: }\n", 2, 9, "env.A", "has no value; for empty text write ''"),
    (R + "env: {A: true}\n", 2, 10, "env.A", "put the value in quotes"),
    (R + "labels: {a: 1.0}\n", 2, 13, "labels.a", "put the value in quotes"),
    (R + "env: {A B: x}\n", 2, 7, "env.A B", "is no name for a variable"),
    (R + "env: [A=b]\n", 2, 6, "env", "must be a mapping"),
    (R + "processes_per_node: 2\nprocesses_per_device: 2\n", 2, 21, "processes_per_node", "not both"),
    ("run: ''\n", 1, 6, "run", "must not be empty"),
    ("run: []\n", 1, 6, "run", "a script .* or a command"),
    ("run: [python, 3]\n", 1, 6, "run", "an argument that is no text: 3; put it in quotes"),
    (R + "run: y\n", 2, 1, "run", r"is given twice \(first on line 1\)"),
    (R + "resources:\n  devices: 1\n  devices: 2\n", 4, 3, "resources.devices", "is given twice"),
    ("run: [x\n", 2, 1, "", "is not valid YAML"),
    ("run: x\n\tname: y\n", 2, 1, "", "spaces, not tabs"),
    ("run: a: b\n", 1, 7, "", "quote a value that holds ': '"),
    ("- run: x\n", 1, 1, "", "must be a mapping of keys to values, not a list"),
    ("just text\n", 1, 1, "", "must be a mapping of keys to values, not the text"),
    ("run: !!python/object/apply:os.system [id]\n", 1, 6, "run", "bears the tag"),
    ("run: &a [*a]\n", 1, 1, "", "aliases expand"),
    ("? [a, b]\n: c\nrun: x\n", 1, 3, "?", "no plain text"),
    ("# nothing\n\n", 0, 0, "", "is empty"),
    ("run: x\x00\n", 1, 1, "", "a character that YAML forbids"),
]


@pytest.mark.parametrize(("text", "line", "column", "field", "words"), BAD)
def test_what_is_wrong_is_told_with_its_place_and_a_way_out(
    text: str, line: int, column: int, field: str, words: str
) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        parse_jobs(text, "job.yaml")
    problem = caught.value.problems[0]
    assert (problem.file, problem.line, problem.column, problem.field) == ("job.yaml", line, column, field)
    assert caught.value.render().startswith(f"job.yaml:{line}:{column}:" if line else "job.yaml:")


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "name: 3\nretries: -1\nwalltime: soon\n---\nrun: x\npriorty: 1\n"
    with pytest.raises(SpecError) as caught:
        parse_jobs(text)
    assert [(p.line, p.field) for p in caught.value.problems] == [
        (1, "run"),
        (1, "name"),
        (2, "retries"),
        (3, "walltime"),
        (6, "priorty"),
    ]


def test_jobs_of_a_file_that_wait_for_each_other_are_refused() -> None:
    text = "---\n".join(f"name: {n}\nrun: x\ndepends_on: [{d}]\n" for n, d in ("ab", "bc", "ca", "dc"))
    with pytest.raises(SpecError, match="jobs wait for each other: a -> b -> c -> a"):
        parse_jobs(text)


def test_a_name_that_others_depend_on_must_be_clear() -> None:
    text = "name: a\nrun: x\n---\nname: a\nrun: x\n---\nrun: y\ndepends_on: [a]\n"
    with pytest.raises(SpecError, match=r":4:7: name: 'a' is used before \(line 1\)"):
        parse_jobs(text)


def test_aliases_cannot_blow_up() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    with pytest.raises(SpecError, match="aliases expand"):
        parse_jobs(bomb)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(SpecError, match="nested too deeply"):
        parse_jobs("run: " + "[" * 2000 + "]" * 2000 + "\n")


def test_a_job_that_depends_on_its_own_id_is_refused() -> None:
    with pytest.raises(ValueError, match="depends on itself"):
        parse_jobs(R)[0].to_core("j", ["j"])


def test_a_file_is_read_and_a_missing_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(FULL)
    assert load_job_file(path)[0].name == load_job_file(str(path))[0].name == "gpt-small"
    with pytest.raises(SpecError, match=r"there is no such file; did you mean 'job.yaml'\?"):
        load_job_file(tmp_path / "jobs.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_job_file(tmp_path)
    path.write_bytes(b"run: \xff\n")
    with pytest.raises(SpecError, match="not UTF-8"):
        load_job_file(path)


@given(st.text(alphabet="abrun:&*![]{}<>-?|'\"#%, \n0159.e", max_size=80))
def test_no_text_raises_anything_but_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        parse_jobs(text)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "examples/jobs").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_is_valid(path: Path) -> None:
    for spec in load_job_file(path):
        for i, task in enumerate(expand(spec)):
            task.to_core(f"job-{i}", [])


def test_the_published_schema_is_up_to_date() -> None:
    published = (REPOSITORY / "docs/job.schema.json").read_text()
    wanted = json.dumps(schema(), indent=2) + "\n"
    assert published == wanted, "write it anew: python -m haibun.spec > docs/job.schema.json"


def test_every_field_is_described_and_documented() -> None:
    page = (REPOSITORY / "docs/job-spec.md").read_text()
    for name, field in JobSpec.model_fields.items():
        assert field.description, name
        assert f"`{name}`" in page, f"docs/job-spec.md does not mention {name}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('run: "\\ud800"\n', "run"),
        ('run: [x, "\\ud800"]\n', "run[1]"),
        ('run: x\nenv: {A: "\\udfff"}\n', "env.A"),
        ('run: x\nresources: {device_type: "\\ud800"}\n', "resources.device_type"),
        ('run: x\nlabels: {"\\ud800": a}\n', "labels.\\ud800"),
        ('run: x\n"\\udfff": a\n', "\\udfff"),
        ('run: "a\\0"\n', "run"),
        ('run: [a, "b\\0"]\n', "run"),
        ('run: x\nsetup: "a\\0"\n', "setup"),
        ('run: x\nworkdir: "/a\\0"\n', "workdir"),
        ('run: x\nworkdir: "/a\\n"\n', "workdir"),
        ('run: x\nname: "a\\nb"\n', "name"),
        ('run: x\ntenant: "a\\e[31m"\n', "tenant"),
        ('run: x\nmodel: "a\\tb"\n', "model"),
        ('run: x\nlabels: {"a\\nb": c}\n', "labels.a\nb"),
        ('run: x\nname: "17"\n', "name"),
        ('run: x\nname: "1{index}"\narray: 0-3\n', "name"),
    ],
)
def test_odd_characters_and_names_that_look_like_ids_are_refused_at_their_field(
    text: str, field: str
) -> None:
    with pytest.raises(SpecError) as e:
        parse_jobs(text)
    assert [p.field for p in e.value.problems] == [field]
    str(e.value).encode()


def test_what_was_accepted_by_older_rules_can_still_be_read() -> None:
    assert JobSpec.from_json('{"run": "x", "name": "17", "tenant": "a\\nb"}').name == "17"
    assert parse_jobs('run: "a\\nb"\nname: é日本 ${index} 1\n')[0].run == "a\nb"
