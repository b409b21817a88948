"""Croissant metadata (MLCommons, version 1.1) as JSON-LD, with its vocabulary of responsible AI.

Written by hand, as the data set is built where `mlcroissant` need not be; `dataset check` reads it
with that library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelmark.benchmark.dataset.identity import (
    CANARY,
    CITATION,
    CURRENT,
    LICENCE_URL,
    NAME,
    SPLIT,
    SUMMARY,
    URL,
)
from kernelmark.benchmark.dataset.schema import CONFIGURATIONS, Column, Configuration

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
RAI_CONFORMS_TO = "http://mlcommons.org/croissant/RAI/1.0"

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

_TYPES = {
    "string": "sc:Text",
    "strings": "sc:Text",
    "int64": "cr:Int64",
    "float64": "cr:Float64",
    "bool": "sc:Boolean",
}

_RAI = {
    "rai:dataCollection": "Operators, cases, oracles and prompts were written for this benchmark; "
    "baselines were measured on the chips that they name.",
    "rai:dataCollectionType": ["Manual Human Curator", "Experiments"],
    "rai:dataUseCases": "Testing: judging methods that write accelerator kernels. Not training.",
    "rai:dataLimitations": "Single operators; public shapes; times of particular chips, drivers "
    "and library versions.",
    "rai:dataBiases": "Operators, dtypes and shapes follow what large language models use.",
    "rai:dataSocialImpact": "Results guide which methods are used and can be gamed; the card lists "
    "known exploits.",
    "rai:personalSensitiveInformation": "None.",
    "rai:dataReleaseMaintenancePlan": "Semantic versions; published rows are never changed "
    "silently: a changed operator has a new digest.",
}


def make_croissant(files: Mapping[str, tuple[str, int]], hash: str) -> dict[str, Any]:
    """The JSON-LD. `files`: sha256 and bytes of each configuration's file, by configuration."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [CONFORMS_TO, RAI_CONFORMS_TO],
        "name": NAME,
        "description": f"{SUMMARY} Content hash {hash}. {CANARY}",
        "url": URL,
        "license": LICENCE_URL,
        "version": CURRENT.version,
        "datePublished": CURRENT.date,
        "citeAs": CITATION,
        "creator": {"@type": "sc:Organization", "name": "Kernelmark", "url": URL},
        "keywords": ["benchmark", "accelerator kernels", "code generation", "Triton", "CUDA"],
        "inLanguage": "en",
        "isLiveDataset": False,
        **_RAI,
        "distribution": [_file(c, *files[c.name]) for c in CONFIGURATIONS],
        "recordSet": [_record_set(c) for c in CONFIGURATIONS],
    }


def _file(configuration: Configuration, sha256: str, nbytes: int) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": f"{configuration.name}.parquet",
        "name": f"{configuration.name}.parquet",
        "description": f"{configuration.description} Split {SPLIT}.",
        "contentUrl": configuration.file,
        "contentSize": f"{nbytes} B",
        "encodingFormat": "application/x-parquet",
        "sha256": sha256,
    }


def _record_set(configuration: Configuration) -> dict[str, Any]:
    keys = [{"@id": f"{configuration.name}/{name}"} for name in configuration.key]
    return {
        "@type": "cr:RecordSet",
        "@id": configuration.name,
        "name": configuration.name,
        "description": configuration.description,
        "key": keys if len(keys) > 1 else keys[0],
        "field": [_field(configuration, column) for column in configuration.columns],
    }


def _field(configuration: Configuration, column: Column) -> dict[str, Any]:
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{configuration.name}/{column.name}",
        "name": column.name,
        "description": column.description,
        "dataType": _TYPES[column.type],
        "source": {
            "fileObject": {"@id": f"{configuration.name}.parquet"},
            "extract": {"column": column.name},
        },
    }
    if column.type == "strings":
        field |= {"isArray": True, "arrayShape": "-1"}
    return field
