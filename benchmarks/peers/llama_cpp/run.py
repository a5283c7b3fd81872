"""llama.cpp: its server over HTTP, and the Python binding in this process.

serial_naive: one slot, no reuse. serial_cache: one slot, its default: each prompt reuses the longest
beginning that the slot still holds. conc_default: five slots, everything at its default; on a cold start
nothing is shared. conc_save: its best: the prefix is read once on slot 0 (inside the wall), saved, restored
into every other slot, and agents are pinned to slots. python: llama-cpp-python's Llama, serial, with its own
prefix reuse.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_protocol import Conversation, Recorder, Work, answer, arguments, conversations, serially

MODES = ("serial_naive", "serial_cache", "conc_default", "conc_save", "python")
READY_TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 1200.0
VERSION = "0.3.36"


def main() -> None:
    """One run. LLAMA_CPP_BUILD names the folder of llama.cpp's build."""
    options = arguments(MODES)
    work = Work.read(options.work)
    build = Path(os.environ["LLAMA_CPP_BUILD"])
    model = options.model / "model.gguf"
    recorder = Recorder()
    if options.mode == "python":
        run_python(work, recorder, model, options.threads, build)
    else:
        with tempfile.TemporaryDirectory(prefix="slots-", dir=_memory_folder()) as folder:
            slots = len(work.agents) if options.mode.startswith("conc") else 1
            asked = server_arguments(model, options.threads, slots, work.longest)
            with server(build / "bin/llama-server", [*asked, "--slot-save-path", folder]) as port:
                run_server(work, recorder, options.mode, port)
                answer(options, work, recorder, {"peer": "llama-server", "version": VERSION})
        return
    answer(options, work, recorder, {"peer": "llama-cpp-python", "version": VERSION})


def server_arguments(model: Path, threads: int, slots: int, longest: int) -> list[str]:
    """The best settings that were found; the context is divided over the slots."""
    context = (longest + 8 + 255) // 256 * 256
    return [
        *("--model", str(model), "--threads", str(threads), "--threads-batch", str(threads)),
        *("--ctx-size", str(context * slots), "--parallel", str(slots)),
        *("--no-kv-unified", "--no-cache-idle-slots", "--batch-size", "2048", "--ubatch-size", "512"),
        *("--host", "127.0.0.1", "--no-webui", "--log-verbosity", "1"),
    ]


@contextlib.contextmanager
def server(program: Path, asked: list[str]) -> Iterator[int]:
    """The server's port while it runs; it is ended with us, whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [str(program), *asked, "--port", str(port)], stdout=sys.stderr, stderr=sys.stderr
    )
    # SIGTERM ends us by an exception, so that the server does not outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"llama-server is not ready; exit code {process.poll()}")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def is_ready(port: int) -> bool:
    """Whether it answers that the model is loaded."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def run_server(work: Work, recorder: Recorder, mode: str, port: int) -> None:
    """The work against a server that is ready."""
    is_cached = mode != "serial_naive"
    complete(port, {"prompt": list(range(300, 364)), "n_predict": 4, "id_slot": 0}, lambda _: None)
    recorder.begin()
    if mode == "conc_save":
        complete(port, {"prompt": work.shared, "n_predict": 0, "id_slot": 0}, lambda _: None)
        slot_action(port, 0, "save")
        for slot in range(1, len(work.agents)):
            slot_action(port, slot, "restore")
    if mode.startswith("conc"):
        together(work, recorder, port)
    else:

        def alone(agent: str, call: int, prompt: list[int], wanted: int) -> list[int]:
            asked = {"prompt": prompt, "n_predict": wanted, "id_slot": 0, "cache_prompt": is_cached}
            return tell(port, asked, recorder, (agent, call))

        serially(work, recorder, alone)
    recorder.end()


def together(work: Work, recorder: Recorder, port: int) -> None:
    """A thread for each agent, each pinned to its slot."""
    failures: list[BaseException] = []

    def live(agent: Conversation, slot: int) -> None:
        try:
            while not agent.is_done:
                prompt = agent.prompt()
                recorder.asked(len(prompt))
                wanted = agent.calls[agent.number].output_tokens
                asked = {"prompt": prompt, "n_predict": wanted, "id_slot": slot, "cache_prompt": True}
                agent.finish(tell(port, asked, recorder, (agent.agent, agent.number)))
        except BaseException as error:  # carried to the thread that waits
            failures.append(error)

    threads = [
        threading.Thread(target=live, args=(agent, slot), daemon=True)
        for slot, agent in enumerate(conversations(work))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CALL_TIMEOUT_S)
    if failures or any(thread.is_alive() for thread in threads):
        raise RuntimeError("an agent did not come to its end") from (failures[0] if failures else None)


def tell(port: int, asked: dict[str, Any], recorder: Recorder, key: tuple[str, int]) -> list[int]:
    """One call, its tokens recorded as they come; the output."""
    made: list[int] = []

    def came(tokens: list[int]) -> None:
        made.extend(tokens)
        recorder.made(*key, tokens)

    timings = complete(port, asked, came)
    recorder.cached(int(timings.get("cache_n", 0)))
    return made


def complete(port: int, asked: dict[str, Any], came: Any) -> dict[str, Any]:
    """Streams one completion; its timings."""
    body = {
        "temperature": 0.0,
        "top_k": 1,
        "ignore_eos": True,
        "stream": True,
        "return_tokens": True,
        "samplers": ["top_k"],
        **asked,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_TIMEOUT_S)
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"llama-server answers {response.status}: {response.read()[:300]!r}")
    timings: dict[str, Any] = {}
    for line in response:
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if event.get("tokens") and not event.get("stop"):
                came(event["tokens"])
            if event.get("stop"):
                timings = event.get("timings", {})
    connection.close()
    return timings


def slot_action(port: int, slot: int, action: str) -> None:
    """Saves or restores the KV of a slot."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_TIMEOUT_S)
    body = json.dumps({"filename": "prefix.bin"})
    connection.request("POST", f"/slots/{slot}?action={action}", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    said = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"slot {slot}, {action}: {response.status} {said[:300]!r}")


def run_python(work: Work, recorder: Recorder, model: Path, threads: int, build: Path) -> None:
    """The binding over the same libraries; it keeps what its context holds of the next prompt."""
    os.environ["LLAMA_CPP_LIB_PATH"] = str(build / "bin")
    from llama_cpp import Llama

    llama = Llama(
        str(model),
        n_ctx=work.longest + 8,
        n_threads=threads,
        n_threads_batch=threads,
        n_batch=2048,
        verbose=False,
    )
    recorder.begin()

    def alone(agent: str, call: int, prompt: list[int], wanted: int) -> list[int]:
        made: list[int] = []
        for token in llama.generate(prompt, temp=0.0, top_k=1):
            made.append(token)
            recorder.made(agent, call, [token])
            if len(made) == wanted:
                break
        return made

    serially(work, recorder, alone)
    recorder.end()


def _memory_folder() -> str | None:
    """Saved slots stay in memory where there is a folder for it."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


if __name__ == "__main__":
    main()
