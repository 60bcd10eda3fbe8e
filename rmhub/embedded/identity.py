"""Who runs the servers, and where their data live.

PostgreSQL refuses to run as root. So when we are root the servers run as another user, and their data have to be where
that user can reach them. Nothing is changed for that outside our own folders: no permission of a parent folder, no
new user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
from pathlib import Path

from rmhub.embedded.processes import EmbeddedError, Identity

OWN_USER, SHARED_USER = "rmhub", "nobody"
DURABLE_SUBSTITUTES = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - made with mkdir, and the owner is checked
"""/var/lib first: systemd empties /var/tmp of files that nobody has touched for a month."""
THROWAWAY_SUBSTITUTES = (Path("/var/tmp"),)  # noqa: S108


def servers_identity() -> Identity | None:
    """Return the user and group to run servers as: None (ourselves) unless we are root.

    As root it is the system user OWN_USER where the machine has one, else nobody, whom other programs share.
    """
    if os.geteuid() != 0:
        return None
    for name in (OWN_USER, SHARED_USER):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return (user.pw_uid, user.pw_gid)
    return (65534, 65534)


def is_shared(identity: Identity | None) -> bool:
    """Return whether other programs of the machine may run as this user, and could then read the servers' data."""
    if identity is None:
        return False
    try:
        return pwd.getpwuid(identity[0]).pw_name != OWN_USER
    except KeyError:
        return True


def make_var(var: Path) -> None:
    """Make the folder if it is missing. Raises EmbeddedError when that is not possible.

    When we are root the servers' user may walk through it, but not list it.
    """
    try:
        var.parent.mkdir(parents=True, exist_ok=True)
        if not var.exists():
            var.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                var.chmod(0o711)  # whatever the umask says
    except OSError as error:
        raise EmbeddedError(
            f"{var} cannot be made ({error.strerror}): name a folder that can be written to in RMHUB_VAR"
        ) from error


def choose_home(var: Path, identity: Identity | None, *, throwaway: bool) -> Path:
    """The folder for the servers' data: ``var``, or a substitute when the servers' user cannot get there."""
    if identity is None or is_reachable(var, identity):
        return var
    name = f"rmhub-{hashlib.sha256(os.fsencode(var)).hexdigest()[:12]}"
    parents = THROWAWAY_SUBSTITUTES if throwaway else DURABLE_SUBSTITUTES
    for parent in parents:
        if os.access(parent, os.W_OK) and is_reachable(parent, identity):
            return parent / name
    raise EmbeddedError(
        f"user {identity[0]} cannot reach {var}, nor is one of {', '.join(map(str, parents))} writable: "
        "name another folder in RMHUB_VAR, or run as a user other than root"
    )


def make_home(home: Path, var: Path) -> None:
    """Make the substitute folder.

    Raises EmbeddedError when somebody else has made one of that name, or when another var folder uses it: that
    happens when a folder is copied with its state, and both would then work on the same data.
    """
    if home == var:
        return
    try:
        home.mkdir(mode=0o711)
        home.chmod(0o711)  # whatever the umask says
    except FileExistsError:
        found = home.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise EmbeddedError(f"{home} belongs to somebody else: remove it") from None
    note = home / "var"
    user = Path(note.read_text(encoding="utf-8")) if note.exists() else var
    if user != var and user.exists():
        raise EmbeddedError(f"{home} holds the data of {user}: remove embedded.json from {var}, which is a copy of it")
    note.write_text(str(var), encoding="utf-8")


def check_owner(folder: Path, identity: Identity | None) -> None:
    """Raises EmbeddedError when the data are those of a run as another user: the servers would refuse them."""
    user = os.geteuid() if identity is None else identity[0]
    if folder.exists() and (found := folder.stat().st_uid) != user:
        raise EmbeddedError(
            f"{folder} belongs to user {found}, and the servers would run as user {user}: "
            "run as the same user as before, give it to that user (chown -R), or name another folder in RMHUB_VAR"
        )


def make_private(folder: Path, identity: Identity | None) -> None:
    """Make a folder that only the servers' user can read."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if identity is not None:
        os.chown(folder, *identity)


def write_private(path: Path, text: str, identity: Identity | None) -> None:
    """Write a file that only the servers' user can read. The folder has to be private already."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        if identity is not None:
            os.fchown(descriptor, *identity)
        file.write(text)


def is_reachable(path: Path, identity: Identity) -> bool:
    """Whether this user may walk to the folder. A folder that does not exist yet counts by its parents."""
    return all(_may_enter(folder, identity) for folder in (path.resolve(), *path.resolve().parents) if folder.exists())


def _may_enter(folder: Path, identity: Identity) -> bool:
    found = folder.stat()
    if found.st_uid == identity[0]:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == identity[1]:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def copy_programs(sources: list[Path], target: Path) -> None:
    """Copy folders with programs to ``target`` so that everybody can run them; all or nothing.

    Does nothing when ``target`` is there: the caller puts the version into its name.
    """
    if target.exists():
        return
    unfinished = target.with_name(target.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o755, parents=True)
    for source in sources:
        shutil.copytree(source, unfinished / source.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
    for folder, _, files in os.walk(unfinished):
        os.chmod(folder, 0o755)  # noqa: S103 - published programs, without a secret
        for path in (Path(folder, file) for file in files):
            if not path.is_symlink():
                os.chmod(path, 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    os.chmod(unfinished.parent, 0o755)  # noqa: S103
    unfinished.rename(target)
