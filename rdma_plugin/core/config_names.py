# SPDX-License-Identifier: Apache-2.0
"""Names of extended resources: what the kubelet accepts, and what to write instead of the rest.

The rules are those of IsExtendedResourceName (kubernetes pkg/apis/core/v1/helper/helpers.go, 1.34 and 1.37): a
qualified name, checked with `requests.` before it, outside kubernetes.io. Readers as in `config_values`.
"""

import re

from rdma_plugin.core import config_values as values
from rdma_plugin.core.config_text import show

MAX_PREFIX = 244
"""253 for a DNS subdomain less `requests.`, which the kubelet puts before it (apis/core/v1/helper/helpers.go)."""
MAX_NAME = 63
"""apimachinery, IsQualifiedName."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""Pattern of the part behind the slash."""


def is_subdomain(text: str) -> bool:
    """True for a DNS subdomain as Kubernetes defines it (RFC 1123, lower case)."""
    return _SUBDOMAIN.fullmatch(text) is not None


def resource_name(value: object) -> str:
    """Read the part after the slash of an extended resource name."""
    text = values.plain_text(value, "hca_shared_devices_a", longest=MAX_NAME)
    if "/" in text:
        values.refuse(f'{show(text)} has a "/"; put the part before it into resourcePrefix')
    if not re.fullmatch(QUALIFIED, text):
        near = re.sub(r"[^-A-Za-z0-9_.]+", "_", text).strip("-_.") or "hca_shared_devices_a"
        allowed = 'letters, digits, "-", "_" and "." are allowed, with a letter or digit at both ends'
        values.refuse(f'{show(text)} is not a resource name: {allowed}; write for example "{near}"')
    return text


def resource_prefix(value: object) -> str:
    """Read the part before the slash of an extended resource name.

    A name with underscores is let through: the peer's documentation has one. The kubelet refuses it, which
    `Resource.problem` states.
    """
    if value == "":
        return "rdma"  # as the peer does
    text = values.plain_text(value, "example.com", longest=MAX_PREFIX)
    if text.startswith("requests.") or text.endswith("kubernetes.io"):
        values.refuse(
            f"{show(text)} belongs to Kubernetes, so the kubelet refuses it; write for example a domain of your own"
        )
    if not is_subdomain(text.replace("_", "-")):
        near = text.lower().strip("/.-")
        more = near if is_subdomain(near) else "example.com"
        allowed = 'lower-case letters, digits, "-" and "." are allowed, with a letter or digit at both ends'
        values.refuse(f'{show(text)} is not a DNS name: {allowed}; write for example "{more}"')
    return text
