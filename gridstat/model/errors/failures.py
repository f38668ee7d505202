"""Failures outside the process: peers, disks."""
# ruff: noqa: N818
# A name says what happened (`Refused`, `LinkDown`); an ending `Error` would add only noise.

from __future__ import annotations

from gridstat.model.errors.root import GridStatError


class LinkDown(GridStatError):
    """A peer cannot be reached."""

    code = 2000
    remedy = "check address, port and whether the peer runs"


class DeadlinePassed(LinkDown):
    """The peer did not answer in time."""

    code = 2001
    remedy = "it may still have acted: ask again, requests are safe to repeat"


class CertificateRefused(LinkDown):
    """A certificate is missing, expired or not signed by the grid's authority."""

    code = 2015
    remedy = "`gridstat certificates show` tells role, scope and dates; renew or re-issue it"


class StorageFailed(GridStatError):
    """The journal cannot be written, so nothing new is promised; forwarding goes on."""

    code = 5001
    remedy = "free disk space or repair the disk; the broker tries again by itself"


class DamagedLog(StorageFailed):
    """Bytes that were recorded and are not what they were."""

    code = 5002
    remedy = "restore the file from a copy; the records before the damage can be read"


class LogFull(StorageFailed):
    """A log has reached its bound, and none of its segments may go."""

    code = 5003
    remedy = "archive and release old segments, or raise the bound of the log"


class RecordsGone(StorageFailed):
    """Records that were asked for were released from the log before."""

    code = 5004
    remedy = "read them from the archive, or begin at the oldest record that the log has"
