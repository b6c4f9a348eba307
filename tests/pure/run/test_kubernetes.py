"""The manifest for Kubernetes against the official schemas, and against rules that schemas cannot express.

No cluster is needed: the package ``kubernetes-validate`` carries the schemas of the releases.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate as schemas
import pytest
import yaml

MANIFEST = Path(__file__).resolve().parents[3] / "configs/k8s/ahbm-job.yaml"
RELEASES = ["1.25", "1.31", schemas.latest_version()]
"""The oldest that the package has, one between, the newest."""
Document = dict[str, Any]


def documents() -> dict[str, Document]:
    return {document["metadata"]["name"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture
def service() -> Document:
    return documents()["ahbm"]


@pytest.fixture
def agents() -> Document:
    return documents()["ahbm-agents"]


@pytest.fixture
def launcher() -> Document:
    return documents()["ahbm-launcher"]


def pod(job: Document) -> Document:
    return job["spec"]["template"]["spec"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", documents())
def test_kubernetes_takes_it(name: str, release: str):
    schemas.validate(documents()[name], release, strict=True)


def test_it_is_an_indexed_job_with_a_host_each(agents: Document, launcher: Document):
    """All agents at once; only the launcher restarts them."""
    spec = agents["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == len(hosts(launcher))
    for job in (agents, launcher):
        assert job["spec"]["backoffLimit"] == 0
        assert pod(job)["restartPolicy"] == "Never"


def hosts(launcher: Document) -> list[str]:
    (words,) = (word for word in pod(launcher)["containers"][0]["command"] if word.startswith("--hosts="))
    return words.removeprefix("--hosts=").split(",")


def test_the_launcher_names_the_pods_of_the_job(service: Document, agents: Document, launcher: Document):
    """<job>-<index>.<service>, which the headless service makes resolve."""
    job, domain = agents["metadata"]["name"], service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert [name.partition(":")[0] for name in hosts(launcher)] == [
        f"{job}-{index}.{domain}" for index in range(agents["spec"]["completions"])
    ]
    for each in (agents, launcher):
        assert pod(each)["subdomain"] == domain
        assert service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_keys_are_the_owners_alone(agents: Document, launcher: Document):
    (container,) = pod(agents)["containers"]
    assert container["command"] == ["ahbm-agent", "--bootstrap", "/run/ahbm/bootstrap.json"]
    (secret,) = (volume for volume in pod(agents)["volumes"] if "secret" in volume)
    assert secret["secret"]["defaultMode"] == 0o400
    assert "fsGroup" not in pod(agents).get("securityContext", {}), "it widens the mode to 0440"
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == secret["name"])
    assert mount == {"name": secret["name"], "mountPath": "/run/ahbm", "readOnly": True}
    # The other side has it in memory only.
    (written,) = (volume for volume in pod(launcher)["volumes"] if volume["name"] == secret["name"])
    assert written["emptyDir"]["medium"] == "Memory"


def test_both_run_the_same_version_of_this_checkout(agents: Document, launcher: Document):
    images = {pod(job)["containers"][0]["image"] for job in (agents, launcher)}
    version = re.search(r'^version = "(.+)"$', (MANIFEST.parents[2] / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert images == {f"ahbm-sim:{version[1]}"}


def test_a_chosen_number_has_its_source():
    """On its line, or in the comment before it."""
    keys = ("completions: 4", "parallelism: 4", "Seconds:", "cpu:", "backoffLimit", "Limit:", "image:", "-timeout=")
    for before, line in pairwise(MANIFEST.read_text().splitlines()):
        if any(key in line for key in keys) and not line.lstrip().startswith("#"):
            comment = before if before.lstrip().startswith("#") else ""
            assert "source: " in comment + line, line
