"""Address of a daemon's metrics: loopback, or any with certificates; nothing is open to anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.console.config.metrics_tls import MetricsTls, MetricsTlsSection, metrics_tls
from gridstat.console.daemons.broker_daemon import load_broker
from gridstat.console.daemons.tree_daemon import load_tree_broker
from gridstat.model.errors import CertificateRefused, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

SECTION = MetricsTlsSection(certificate="a.pem", key="a.key", client_authority="m.pem")
CLOUD = 'cloud = "c1"\n{keys}\n[[router]]\nname = "e0"\n'
TREE = 'broker = "root"\n{keys}\n[[child]]\nname = "c1"\n'
OPEN_TO_ALL = 'metrics_port = 0\nmetrics_host = "192.0.2.7"'


@pytest.mark.parametrize("host", [None, "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_needs_no_certificate(tmp_path: Path, host: str | None) -> None:
    assert metrics_tls(tmp_path / "c1.toml", host, 9_100, None) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "10.0.0.1", "2001:db8::1"])
def test_another_address_without_certificates_is_refused_with_a_hint(
    tmp_path: Path, host: str
) -> None:
    with pytest.raises(ConfigurationError, match="anybody could read the metrics") as caught:
        metrics_tls(tmp_path / "c1.toml", host, 9_100, None)
    assert "[metrics_tls]" in caught.value.hint
    made = metrics_tls(tmp_path / "c1.toml", host, 9_100, SECTION)
    assert made is not None
    assert made.key == tmp_path / "a.key"


def test_certificates_without_a_port_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="metrics_tls: there is no metrics_port"):
        metrics_tls(tmp_path / "c1.toml", None, None, SECTION)


def test_brokers_of_both_kinds_refuse_an_open_address(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(CLOUD.format(keys=OPEN_TO_ALL))
    with pytest.raises(ConfigurationError, match="metrics_host"):
        load_broker(file)
    file.write_text(TREE.format(keys=OPEN_TO_ALL))
    with pytest.raises(ConfigurationError, match="metrics_host"):
        load_tree_broker(file)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    missing = MetricsTls(tmp_path / "a.pem", tmp_path / "a.key", tmp_path / "m.pem")
    with pytest.raises(CertificateRefused, match=r"metrics_tls.*cannot be used"):
        missing.context()
