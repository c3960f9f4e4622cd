"""A small load client for servers with OpenAI's streaming HTTP interface.

While a load runs, the client only keeps (time, bytes) of each read from a socket; HTTP and events
are parsed afterwards, so that it takes little from the server on the same machine. One request is
one connection. Latencies are in ms and count from when a request was due; a failed request raises.
"""

import asyncio
import json
import random
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT_S = 600
# Words that most vocabularies hold as one token with the space before it.
WORDS = """time year people way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book eye job
word business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea body information back parent face others level
office door health person art war history party result change morning reason research girl guy
moment air teacher force""".split()


class LoadError(Exception):
    """A request was not answered as it should be; the message says how."""


@dataclass
class Request:
    prompt: str
    output_tokens: int
    cancel_after: int = 0  # events after which the client leaves; 0: never


@dataclass
class Answer:
    """One request on the wire, then parsed. Times in seconds of time.perf_counter."""

    request: Request
    due: float
    end: float = 0.0
    reads: list = field(default_factory=list)
    error: str = ""
    cancelled: bool = False
    token_times: list = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0

    @property
    def ttft_ms(self):
        return (self.token_times[0] - self.due) * 1000

    @property
    def gaps_ms(self):
        return [(b - a) * 1000 for a, b in zip(self.token_times, self.token_times[1:])]

    @property
    def tok_s(self):
        """Tokens a second after the first one."""
        return (self.tokens_out - 1) / (self.token_times[-1] - self.token_times[0])


class _Connection(asyncio.Protocol):
    def __init__(self, answer, payload, done):
        self.answer, self.payload, self.done = answer, payload, done
        self.events = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(self.payload)

    def data_received(self, data):
        self.answer.reads.append((time.perf_counter(), data))
        limit = self.answer.request.cancel_after
        if limit:
            self.events += data.count(b"data:")
            if self.events > limit:
                self.answer.cancelled = True
                self.transport.abort()
        elif b"[DONE]" in data:
            self.transport.close()

    def connection_lost(self, error):
        self.answer.end = time.perf_counter()
        if error is not None and not self.answer.cancelled:
            self.answer.error = f"connection lost: {error}"
        if not self.done.done():
            self.done.set_result(None)


def _event_lines(reads):
    """(status, [(time, line)]) of an HTTP/1.1 response with a chunked or plain body."""
    raw, text, lines, status, chunked = b"", b"", [], 0, False
    for when, data in reads:
        raw += data
        if not status:
            head, found, rest = raw.partition(b"\r\n\r\n")
            if not found:
                continue
            status = int(head.split(b" ", 2)[1])
            chunked = b"transfer-encoding: chunked" in head.lower()
            raw = rest
        while chunked:
            size, found, rest = raw.partition(b"\r\n")
            if not found or len(rest) < (length := int(size.split(b";")[0] or b"0", 16)) + 2:
                break
            text, raw = text + rest[:length], rest[length + 2 :]
        if not chunked:
            text, raw = text + raw, b""
        *complete, text = text.split(b"\n")
        lines += [(when, line.strip()) for line in complete if line.strip()]
    return status, lines + ([(reads[-1][0], text)] if text else [])


def _parse(answer):
    status, lines = _event_lines(answer.reads)
    usage = {}
    for when, line in lines:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            answer.error = answer.error or str(event["error"])[:200]
        usage = event.get("usage") or usage
        choices = event.get("choices")
        # A later event may be without text: a token can end inside a character.
        if choices and (choices[0].get("text") or not choices[0].get("finish_reason")):
            answer.token_times.append(when)
    if status != 200 and not answer.cancelled:
        said = b" ".join(line for _, line in lines)[:200].decode(errors="replace")
        answer.error = answer.error or f"HTTP {status}: {said}"
    answer.reads = []
    answer.tokens_in = usage.get("prompt_tokens", 0)
    answer.tokens_out = usage.get("completion_tokens", 0)
    answer.tokens_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if not answer.cancelled and not answer.error:
        if len(answer.token_times) == 0 or answer.tokens_out != answer.request.output_tokens:
            answer.error = f"{answer.tokens_out} of {answer.request.output_tokens} tokens came"
    if answer.error:
        raise LoadError(answer.error)
    return answer


class Client:
    def __init__(self, base_url, model, fields, seed):
        self.base_url, self.model, self.fields = base_url, model, fields
        self.random = random.Random(seed)
        self.words_per_token = 1.0

    def warm_up(self):
        """One request; it also tells how many tokens a word is, so that lengths are in tokens."""
        words = 300
        answer = self.run([Request(self.words(words), 16)])[0]
        self.words_per_token = words / answer.tokens_in

    def words(self, tokens):
        """A text that no cache knows, of about so many tokens."""
        count = max(1, round(tokens * self.words_per_token))
        return " ".join(self.random.choice(WORDS) for _ in range(count))

    def run(self, requests, concurrency=0, intrusion=None):
        """Answers of requests, `concurrency` at a time (0: all at once), in the order of their end.

        intrusion=(Request maker, seconds): one more request every so many seconds, not returned.
        """
        return asyncio.run(self._run(requests, concurrency, intrusion))

    async def _run(self, requests, concurrency, intrusion):
        answers, pending = [], iter(requests)

        async def stream():
            for request in pending:
                answers.append(await self._perform(request))

        async def intrude(make, every_s):
            while True:
                await asyncio.sleep(every_s)
                intruders.append(asyncio.create_task(self._perform(make())))

        intruders = []
        intruder = asyncio.create_task(intrude(*intrusion)) if intrusion else None
        await asyncio.gather(*(stream() for _ in range(concurrency or len(requests))))
        if intruder:
            intruder.cancel()
            for answer in await asyncio.gather(*intruders):
                _parse(answer)
        return [_parse(answer) for answer in answers]

    async def _perform(self, request):
        url = urlsplit(self.base_url)
        body = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.fields,
        }
        payload = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        ).encode()
        answer = Answer(request, time.perf_counter())
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        try:
            transport, _ = await loop.create_connection(
                lambda: _Connection(answer, head + payload, done), url.hostname, url.port
            )
        except OSError as error:
            answer.error = f"connect: {error}"
            return answer
        try:
            await asyncio.wait_for(done, TIMEOUT_S)
        except asyncio.TimeoutError:
            answer.error = f"no end after {TIMEOUT_S} s"
            transport.abort()
        return answer


def percentile(values, share):
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def rate_all_active(answers):
    """Tokens a second while every stream is between its first and last token: no ramps."""
    begin = max(answer.token_times[0] for answer in answers)
    end = min(answer.token_times[-1] for answer in answers)
    if end <= begin:
        raise LoadError("the streams were never all active")
    tokens = 0.0
    for answer in answers:
        inside = sum(begin < when <= end for when in answer.token_times)
        tokens += inside * answer.tokens_out / len(answer.token_times)
    return tokens / (end - begin)


def output_rate(answers):
    """Output tokens a second from the first request to the last byte."""
    seconds = max(a.end for a in answers) - min(a.due for a in answers)
    return sum(answer.tokens_out for answer in answers) / seconds
