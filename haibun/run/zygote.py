"""A process that starts others: by fork and exec, or by fork alone, with torch already imported.

Run by its path with nothing but the standard library, so that what it forks differs from a fresh interpreter
by no module of Haibun. It is single-threaded: a fork of it is safe where a fork of the agent might not be.
The child forks twice: once the middle process has gone, the agent (a subreaper) is the parent, so that the
agent itself reaps the worker, a dead zygote takes no worker with it, and a dead agent takes all of them
(PR_SET_PDEATHSIG).

The zygote with torch forks some workers in advance, since forking hundreds of megabytes takes longer than all
that follows; such a spare, already a child of the agent, waits for its request on a socket of its own.

A request on the socket is a 4-byte length and JSON, with descriptors beside it: the status pipe, then, where
wanted, a terminal. The child writes ``pid N`` to the status pipe, then ``error WHY`` if it cannot start, and
closes it once the program runs. Arguments: socket descriptor, the agent's process id, and the number of
spares (with torch; else none).
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which no worker must see

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import os
import select
import signal
import socket
import threading
import time
import types
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
MAX_FDS = 4
SPARE = b"haibun-spare"  # the name of a spare, by which the agent knows it from a stray process
REFILL_AFTER = 0.05  # seconds without a request; a gang's workers come all at once, and wait for no refill
# torch and what it imports late: torch._dynamo alone takes two seconds when an optimizer is first made.
WARM = (
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.optim",
    "torch.utils.data",
)
FIXED_SEED = 67280421310721  # with which older versions of torch begin, always
_libc = ctypes.CDLL(None, use_errno=True)


def read_request(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next request and its descriptors; None when the agent has gone."""
    fds = array.array("i")
    head, ancillary, _, _ = sock.recvmsg(4, socket.CMSG_LEN(MAX_FDS * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    size = int.from_bytes(head + _exactly(sock, 4 - len(head)), "little") if head else 0
    if not size:
        return None
    request: dict[str, Any] = json.loads(_exactly(sock, size))
    return request, list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size and (part := sock.recv(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(sock: socket.socket, agent: int, spares: int) -> tuple[dict[str, Any], list[int]]:
    """Have a child for every request. Returns in the child: the request and its descriptors."""
    waiting: list[socket.socket] = []
    while True:
        while len(waiting) < spares and not select.select([sock], [], [], REFILL_AFTER)[0]:
            ours, theirs = socket.socketpair()
            if fork_twice() == 0:
                for other in (sock, ours, *waiting):
                    other.close()
                return wait_for_request(theirs, agent)
            theirs.close()
            waiting.append(ours)
        try:
            request = read_request(sock)
        except OSError:
            request = None
        if request is None:
            os._exit(0)
        wanted, fds = request
        if not (waiting and hand_over(waiting.pop(), wanted, fds)) and fork_twice() == 0:
            for other in (sock, *waiting):
                other.close()
            settle(agent)
            return wanted, fds
        for fd in fds:
            os.close(fd)


def fork_twice() -> int:
    """Fork a process whose parent ends at once. Returns 0 in it, 1 in the caller."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return 1
    if os.fork():
        os._exit(0)
    return 0


def hand_over(spare: socket.socket, wanted: dict[str, Any], fds: list[int]) -> bool:
    """Give a spare its request; False if it has died."""
    body = json.dumps(wanted).encode()
    with spare:
        try:
            socket.send_fds(spare, [len(body).to_bytes(4, "little")], fds)
            spare.sendall(body)
        except OSError:
            return False
    return True


def wait_for_request(sock: socket.socket, agent: int) -> tuple[dict[str, Any], list[int]]:
    """A spare's life until it has a job; it ends with its zygote."""
    _libc.prctl(PR_SET_NAME, SPARE, 0, 0, 0)
    settle(agent)
    request = read_request(sock)
    if request is None:
        os._exit(0)
    sock.close()
    return request


def settle(agent: int) -> None:
    """Become a child of the agent that dies with it, in a session of its own."""
    os.setsid()
    while os.getppid() != agent:  # until the middle process has gone; microseconds
        if os.getppid() == 1 and agent != 1:
            os._exit(1)
        time.sleep(0.0001)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(1)


def refuse(status: int, why: str) -> None:
    """Tell the agent why the program does not run, and end."""
    os.write(status, f"error {why}\n".encode())
    os._exit(127)


def prepare(wanted: dict[str, Any], fds: list[int]) -> None:
    """Files, folder, environment."""
    os.write(fds[0], f"pid {os.getpid()}\n".encode())
    redirect(wanted, fds)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])


def enter_cage(wanted: dict[str, Any]) -> None:
    """From here on the limits bind. Late: all before is ours, and half a core would make it twice as slow."""
    for path in wanted["joins"]:
        with open(path, "w") as f:
            f.write("0")
    if wanted["cpus"]:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, wanted["cpus"])


def redirect(wanted: dict[str, Any], fds: list[int]) -> None:
    """Give it its standard streams: a terminal, or nothing to read and the log (appended) to write."""
    if len(fds) > 1:
        import fcntl
        import termios

        fcntl.ioctl(fds[1], termios.TIOCSCTTY, 0)
        streams = [fds[1]] * 3
    else:
        log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        streams = [os.open(os.devnull, os.O_RDONLY), log, log]
    for target, source in enumerate(streams):
        os.dup2(source, target)
    for fd in set(streams):
        os.close(fd)


def execute(wanted: dict[str, Any], status: int) -> None:
    """Replace this process by the program asked for; the status pipe closes by itself."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    argv = wanted["argv"]
    try:
        os.execvpe(argv[0], argv, dict(os.environ))
    except OSError as e:
        refuse(status, f"{argv[0]}: {e.strerror}")


def become_interpreter(wanted: dict[str, Any]) -> dict[str, Any]:
    """Make this process what ``python SCRIPT ARGUMENTS`` is just before its first line. Returns __main__."""
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if wanted["threads"] > 1:
        sys.modules["torch"].set_num_threads(wanted["threads"])
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # or all workers would draw the numbers of the zygote
    if "torch" in sys.modules and sys.modules["torch"].initial_seed() != FIXED_SEED:
        sys.modules[
            "torch"
        ].default_generator.seed()  # torch begins with a seed by chance: not with the zygote's
    unbuffered = wanted["unbuffered"] or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = _stream(0, "<stdin>", "r", unbuffered)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "<stdout>", "w", unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "<stderr>", "w", unbuffered)  # type: ignore[misc]
    arguments = wanted["arguments"]
    first = os.getcwd() if wanted["module"] else os.path.dirname(os.path.realpath(arguments[0]))
    sys.path[:0] = [first, *wanted["python_path"]]
    sys.argv = ["-m", *arguments[1:]] if wanted["module"] else list(arguments)
    sys.orig_argv = list(wanted["argv"])
    rename(sys.orig_argv)
    main = types.ModuleType("__main__")
    names = vars(main)
    names.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    return names


def _stream(fd: int, name: str, mode: str, unbuffered: bool) -> io.TextIOWrapper:
    """A standard stream as the interpreter makes it (``create_stdio`` in pylifecycle.c)."""
    raw: Any = io.FileIO(fd, mode, closefd=False)
    raw.name = name
    buffer = io.BufferedReader(raw) if mode == "r" else raw if unbuffered else io.BufferedWriter(raw)
    like: Any = sys.__stdin__  # encoding and errors follow from the locale, which is that of the zygote
    errors = "backslashreplace" if fd == 2 else like.errors
    line = not unbuffered and (fd == 2 or os.isatty(fd))
    stream: Any = io.TextIOWrapper(
        buffer, like.encoding, errors, line_buffering=line, write_through=unbuffered
    )
    stream.mode = mode
    return stream  # type: ignore[no-any-return]


def rename(argv: list[str]) -> None:
    """Make ``ps`` show the worker's command, not the zygote's, as far as the room of the latter goes."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = "\0".join(argv).encode(errors="replace")[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    _libc.prctl(PR_SET_NAME, os.path.basename(argv[0]).encode()[:15], 0, 0, 0)


def run(wanted: dict[str, Any], names: dict[str, Any], ours: frozenset[str]) -> None:
    """Run the script or module as ``__main__`` and end as the interpreter would. Does not return."""
    code = 0
    try:
        if wanted["module"]:
            import runpy

            runpy._run_module_as_main(wanted["arguments"][0])  # type: ignore[attr-defined]
        else:
            _run_script(wanted["arguments"][0], names)
    except SystemExit as e:
        code = _exit_code(e)
    except KeyboardInterrupt as e:
        _report(e)
        code = -signal.SIGINT
    except BaseException as e:
        _report(e)
        code = 1
    finish(code, ours)


def _run_script(name: str, names: dict[str, Any]) -> None:
    path = os.path.abspath(name)
    names["__file__"], names["__cached__"] = path, None
    names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    try:
        with io.open_code(path) as f:
            source = f.read()
    except OSError as e:
        what = f"{sys.executable}: can't open file {path!r}: [Errno {e.errno}] {e.strerror}"
        sys.stderr.write(what + "\n")
        sys.exit(2)
    exec(compile(source, path, "exec"), names)


def _exit_code(end: SystemExit) -> int:
    """What the interpreter makes of SystemExit."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def finish(code: int, ours: frozenset[str]) -> None:
    """End like the interpreter: threads, exit handlers, the script's objects, streams; not torch's thousands.

    Taking apart what the zygote had imported would cost a quarter of a second, with the devices still held.
    """
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.last_value = sys.last_traceback = None
    theirs = [m for name, m in list(sys.modules.items()) if name == "__main__" or name not in ours]
    for module in theirs:  # objects of the script end here: files are flushed, __del__ is called
        with contextlib.suppress(BaseException):
            vars(module).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _report(error: BaseException) -> None:
    """Print the traceback from the user's first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def warm_up() -> dict[str, str]:
    """Import what workers will want. Returns the top-level modules that they then have, with their files.

    Raises:
        ImportError: torch is not installed.
    """
    for name in WARM:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # another interpreter may lack Haibun
        importlib.import_module("haibun.train").preload()
    gc.collect()
    gc.freeze()  # a collection in a worker then leaves the shared pages alone
    names = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    return {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in names}


def main() -> None:
    """Serve until the agent goes; in a child: run what was asked for."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    sock, agent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    if os.getppid() != agent:
        return
    spares = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    answer: dict[str, Any] = {"modules": {}}
    if spares:
        try:
            answer = {"modules": warm_up()}
        except ImportError as e:
            answer["error"] = str(e)
    sock.sendall(json.dumps(answer).encode() + b"\n")
    wanted, fds = serve(sock, agent, spares)
    status, names = fds[0], {}
    try:
        prepare(wanted, fds)
        if wanted["python"]:
            names = become_interpreter(wanted)
        enter_cage(wanted)
    except BaseException as e:
        refuse(status, f"{type(e).__name__}: {e}")
    if wanted["python"]:
        os.close(status)
        run(wanted, names, frozenset(sys.modules))
    else:
        execute(wanted, status)


if __name__ == "__main__":
    main()
