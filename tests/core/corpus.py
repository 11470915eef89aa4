# SPDX-License-Identifier: Apache-2.0
"""Hostile configuration files, by name: each must end in one readable message and exit code 2, never in a traceback.

Made in code, because half of them are large or can't be kept in a text file.
"""

import json
from typing import Any

_MIB = 1024 * 1024


def resource(**changes: Any) -> dict[str, Any]:
    """Return a valid resource with changes."""
    return {"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}} | changes


def document(**changes: Any) -> bytes:
    """Return a configuration of one valid resource with changes to that resource."""
    return json.dumps({"configList": [resource(**changes)]}).encode()


HOSTILE: dict[str, bytes] = {
    # not text
    "empty": b"",
    "blank": b" \n\t\r\n",
    "byte-order-mark": b"\xef\xbb\xbf" + document(),
    "utf-16": document().decode().encode("utf-16"),
    "utf-16-without-mark": document().decode().encode("utf-16-le"),
    "invalid-utf-8": document().replace(b'"a"', b'"\xff\xfe"'),
    "truncated-utf-8": document()[:-1] + b"\xe2\x82",
    "surrogates-in-utf-8": document().replace(b'"a"', b'"\xed\xa0\x80"'),
    "nul": document().replace(b"1", b"\x001"),
    "all-nul": b"\0" * 4096,
    "binary": bytes(range(256)) * 16,
    "elf": b"\x7fELF\x02\x01\x01" + bytes(64),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(32),
    # not JSON
    "half": document()[:40],
    "open-bracket": b"{",
    "open-string": b'{"configList',
    "open-string-of-escapes": b'{"configList' + b'\\"' * (_MIB // 2),
    "mebibyte-of-quotes": b'"' * _MIB,
    "mebibyte-of-backslashes": b"\\" * _MIB,
    "mebibyte-of-blanks-inside": b"{" + b" " * _MIB,
    "mebibyte-of-commas": b"[" + b"," * _MIB,
    "mebibyte-of-lines": b"{" + b"\n" * _MIB + b"x",
    "trailing-comma": b'{"configList": [],}',
    "comment": b'// plugin\n{"configList": []}',
    "single-quotes": b"{'configList': []}",
    "yaml": b"configList:\n- resourceName: a\n",
    "manifest": b'apiVersion: v1\nkind: ConfigMap\ndata:\n  config.json: "{}"\n',
    "two-documents": document() + document(),
    "line-break-in-string": b'{"configList": "a\nb"}',
    "bad-escape": b'{"configList": "\\x41"}',
    "nan": document().replace(b": 1,", b": NaN,"),
    "infinity": document().replace(b": 1,", b": Infinity,"),
    "minus-infinity": document().replace(b": 1,", b": -Infinity,"),
    "word": b"true",
    "number": b"200",
    "text": b'"configList"',
    "null": b"null",
    "list": b"[" + document() + b"]",
    # deep and wide
    "deep-lists": b"[" * 100_000,
    "deep-lists-closed": b"[" * 5_000 + b"]" * 5_000,
    "deep-objects": b'{"a":' * 100_000,
    "deep-inside": document(selectors="@").replace(b'"@"', b"[" * 40 + b"]" * 40),
    "closing-brackets": b"]" * _MIB,
    "many-resources": json.dumps({"configList": [1] * 9_000}).encode(),
    "many-keys": json.dumps({f"configList{i}": i for i in range(6_000)}).encode(),
    "many-entries": document(selectors={"vendors": [1] * 9_000}),
    "many-faults-in-lists": document(selectors={"vendors": ["mellanox"] * 9_000}),
    "many-empty-lists": b"[" + b"[]," * (_MIB // 3) + b"[]]",
    "many-repeated-keys": b'{"configList": [' + b'{"resourceName": "a", "resourceName": "a"},' * 1_500 + b"0]}",
    "three-mebibytes": document(resourceName="a" * 3 * _MIB),
    # large values
    "mebibyte-name": document(resourceName="a" * _MIB),
    "mebibyte-prefix": document(resourcePrefix="a." * (_MIB // 2)),
    "mebibyte-prefix-of-hyphens": document(resourcePrefix="a" + "-" * _MIB),
    "mebibyte-interface": document(selectors={"ifNames": ["*" * _MIB]}),
    "mebibyte-of-open-brackets": document(selectors={"ifNames": ["[" * _MIB]}),
    "mebibyte-vendor": document(selectors={"vendors": ["f" * _MIB]}),
    "mebibyte-address": document(selectors={"pciAddresses": ["0" * _MIB]}),
    "mebibyte-link-type": document(selectors={"linkTypes": ["infiniban" * (_MIB // 9)]}),
    "mebibyte-health": document(health="a" * _MIB),
    "mebibyte-range": document(selectors={"pfNames": ["a#" + "1," * (_MIB // 2)]}),
    "mebibyte-key": document(**{"v" * _MIB: 1}),
    "mebibyte-of-digits": document(rdmaHcaMax="@").replace(b'"@"', b"9" * _MIB),
    "five-thousand-digits": document(rdmaHcaMax="@").replace(b'"@"', b"9" * 5_000),
    "minus-many-digits": document(rdmaHcaMax="@").replace(b'"@"', b"-" + b"9" * 5_000),
    "huge-exponent": document(rdmaHcaMax="@").replace(b'"@"', b"1e999999999"),
    "mebibyte-fraction": document(rdmaHcaMax="@").replace(b'"@"', b"1." + b"0" * _MIB),
    "int64-overflow": document(rdmaHcaMax=2**63),
    "control-characters": document(resourceName="\x1b[31mred\x07\u202e"),
    "lone-surrogate": document(resourceName="\ud800"),
    "surrogate-key": document(**{"\udfff": 1}),
    # wrong types and values
    "no-config-list": b"{}",
    "config-list-null": b'{"configList": null}',
    "config-list-object": b'{"configList": {}}',
    "config-list-empty": b'{"configList": []}',
    "config-list-of-nulls": b'{"configList": [null, 1, "a", [], true]}',
    "repeated-key": b'{"configList": [], "configList": []}',
    "repeated-key-inside": document().replace(b'"vendors"', b'"vendors": [], "vendors"'),
    "other-case": document().replace(b"configList", b"configlist"),
    "unknown-key": document(selector={}),
    "name-null": document(resourceName=None),
    "name-number": document(resourceName=5),
    "name-empty": document(resourceName=""),
    "max-text": document(rdmaHcaMax="200"),
    "max-float": document(rdmaHcaMax=200.0),
    "max-boolean": document(rdmaHcaMax=True),
    "max-negative": document(rdmaHcaMax=-100),
    "max-list": document(rdmaHcaMax=[200]),
    "selectors-list": document(selectors=[{"vendors": ["15b3"]}]),
    "selectors-text": document(selectors="15b3"),
    "selectors-empty": document(selectors={}),
    "selectors-of-empty-lists": document(selectors={"vendors": [], "ifNames": []}),
    "vendors-text": document(selectors={"vendors": "15b3"}),
    "vendors-of-nulls": document(selectors={"vendors": [None]}),
    "vendors-nested": document(selectors={"vendors": [["15b3"]]}),
    "exclude-list": document(exclude=[]),
    "env-text": document(env="true"),
    "env-number": document(env=1),
    "char-devices-empty": document(charDevices=[]),
    "cdi-on": document(cdi=True),
    "allocation-device": document(allocation="device"),
    "interval-text": document().replace(b"{", b'{"periodicUpdateInterval": "60", ', 1),
}
"""Contents by name. Not in here, because they aren't contents: a directory, an unreadable file, a dangling link."""
