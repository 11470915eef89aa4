# SPDX-License-Identifier: Apache-2.0
"""Real kubelets for `make test-kubelet`: `run.sh CMD...` builds them and runs CMD where they may be started."""
