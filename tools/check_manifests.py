"""check_manifests.py CRD...: holds packaging/kubernetes to schemas.

The CRDs are those of LeaderWorkerSet (leaderworkerset.x-k8s.io_leaderworkersets.yaml), of the Gateway API inference extension
(inference.networking.k8s.io_inferencepools.yaml) and of the Gateway API (gateway.networking.k8s.io_httproutes.yaml), from their
repositories. Unknown fields are faults, as kubectl's strict validation has it. The kinds of Kubernetes itself are compared with
the models of its Python client. Needs pyyaml, jsonschema and kubernetes from PyPI. What a schema cannot say (the rules in CEL)
is not checked.
"""

import pathlib
import re
import sys

import jsonschema
import kubernetes.client
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def strict(schema):
    """The schema in JSON Schema's terms, with no field beyond those that it names."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made = {"type": ["integer", "string"]}
    elif isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def schemas(paths):
    """By (apiVersion, kind)."""
    found = {}
    for path in paths:
        for crd in yaml.safe_load_all(pathlib.Path(path).read_text()):
            for version in crd["spec"]["versions"] if crd else ():
                made = strict(version["schema"]["openAPIV3Schema"])
                made["properties"]["metadata"] = {"type": "object"}
                found[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = made
    return found


def faults_of_model(value, kind, place):
    """What the client's model of a kind (V1Service, list[V1Port], dict(str, str), str) does not allow."""
    if match := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        if not isinstance(value, list):
            return [f"{place}: is no list"]
        return [f for at, part in enumerate(value) for f in faults_of_model(part, match.group(1), f"{place}[{at}]")]
    if match := re.fullmatch(r"[Dd]ict[(\[](.*), (.*)[)\]]", kind):
        return [f for key, part in value.items() for f in faults_of_model(part, match.group(2), f"{place}.{key}")]
    plain = {"str": str, "int": int, "bool": bool, "float": (int, float)}
    if kind in plain:
        right = isinstance(value, plain[kind]) and not (kind == "int" and isinstance(value, bool))
        return [] if right else [f"{place}: is no {kind}"]
    if kind in ("object", "datetime") or not isinstance(value, dict):
        return [] if kind == "object" else [f"{place}: is no {kind}"]
    model = getattr(kubernetes.client, kind)
    names = {json: python for python, json in model.attribute_map.items()}
    faults = [f"{place}.{key}: unknown field" for key in value if key not in names]
    for key, part in value.items():
        if key in names:
            faults += faults_of_model(part, model.openapi_types[names[key]], f"{place}.{key}")
    for python, field in model.model_fields.items():
        if field.is_required() and model.attribute_map[python] not in value:
            faults.append(f"{place}: {model.attribute_map[python]} is missing")
    return faults


def faults_of(manifest, by_kind):
    version, kind = manifest["apiVersion"], manifest["kind"]
    if (version, kind) in by_kind:
        checker = jsonschema.Draft7Validator(by_kind[version, kind])
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in checker.iter_errors(manifest)]
    model = version.split("/")[-1].capitalize() + kind
    if not hasattr(kubernetes.client, model):
        return [f"there is no schema of {version} {kind}"]
    return faults_of_model(manifest, model, kind)


def main(paths):
    by_kind = schemas(paths)
    bad = count = 0
    for path in sorted((ROOT / "packaging/kubernetes").glob("*.yaml")):
        for manifest in filter(None, yaml.safe_load_all(path.read_text())):
            count += 1
            for fault in faults_of(manifest, by_kind):
                bad += 1
                print(f"{path.relative_to(ROOT)}: {manifest['kind']}: {fault}")
    print(f"{count} manifests, {bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1:]))
