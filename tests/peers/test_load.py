"""The load client against a server of its own that answers byte by byte."""

import asyncio
import json
import queue
import threading

import load
import pytest


def event(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text="a"):
    return event(choices=[{"text": text, "finish_reason": None}])


END = event(choices=[{"text": "", "finish_reason": "length"}])
DONE = b"data: [DONE]\n\n"


def usage(tokens):
    details = {"cached_tokens": 2}
    return event(
        choices=[],
        usage={"prompt_tokens": 5, "completion_tokens": tokens, "prompt_tokens_details": details},
    )


class Server:
    """Sends what `answer(body)` returns, each part by itself; None waits for the client."""

    def __init__(self, answer, piece=1 << 20, chunked=True):
        self.answer, self.piece, self.chunked = answer, piece, chunked
        self.bodies, self.left, self.open_most, self.open = [], queue.Queue(), 0, 0
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0)
        )
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def _serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        size = next(int(each.split(b":")[1]) for each in lines if each.startswith(b"content-l"))
        self.bodies.append(json.loads(await reader.readexactly(size)))
        self.open += 1
        self.open_most = max(self.open_most, self.open)
        status, parts = self.answer(self.bodies[-1])
        kind = b"Transfer-Encoding: chunked\r\n" if self.chunked else b""
        await self._send(writer, b"HTTP/1.1 %d X\r\n%b\r\n" % (status, kind))
        for part in parts:
            if part is None:
                self.left.put(await reader.read())
                break
            framed = b"%x\r\n%b\r\n" % (len(part), part) if self.chunked else part
            await self._send(writer, framed)
        self.open -= 1
        writer.close()

    async def _send(self, writer, data):
        for at in range(0, len(data), self.piece):
            writer.write(data[at : at + self.piece])
            await writer.drain()
            await asyncio.sleep(0)


@pytest.fixture
def serve():
    servers = []

    def start(*arguments, **options):
        servers.append(Server(*arguments, **options))
        return servers[-1], load.Client(servers[-1].url, "m", {"extra": 1}, "seed")

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("chunked", [True, False])
def test_an_answer_in_pieces(serve, piece, chunked):
    parts = [token(), token(""), token("c"), END, usage(3), DONE]
    server, client = serve(lambda body: (200, parts), piece, chunked)
    answer = client.run([load.Request("hello", 3)])[0]
    assert (answer.tokens_in, answer.tokens_out, answer.tokens_cached) == (5, 3, 2)
    assert len(answer.token_times) == 3
    assert len(answer.gaps_ms) == 2
    assert answer.ttft_ms > 0
    body = server.bodies[0]
    assert (body["prompt"], body["max_tokens"], body["extra"]) == ("hello", 3, 1)


@pytest.mark.parametrize(
    ("status", "parts", "says"),
    [
        (503, [b'{"error": "busy"}'], "HTTP 503.*busy"),
        (200, [token(), usage(1), DONE], "1 of 3 tokens"),
        (200, [token(), event(error="broke")], "broke"),
        (200, [], "0 of 3 tokens"),
    ],
)
def test_what_is_no_full_answer_raises(serve, status, parts, says):
    _, client = serve(lambda body: (status, parts))
    with pytest.raises(load.LoadError, match=says):
        client.run([load.Request("hello", 3)])


def test_a_client_that_leaves(serve):
    server, client = serve(lambda body: (200, [token()] * 5 + [None]))
    answer = client.run([load.Request("hello", 1000, cancel_after=4)])[0]
    assert answer.cancelled
    assert server.left.get(timeout=30) == b""  # the server saw the end of the connection


def test_no_more_at_once_than_asked(serve):
    server, client = serve(lambda body: (200, [token(), usage(1), DONE]))
    answers = client.run([load.Request(str(index), 1) for index in range(9)], concurrency=2)
    assert len(answers) == 9
    assert server.open_most <= 2
    assert sorted(body["prompt"] for body in server.bodies) == [str(index) for index in range(9)]


def test_lengths_are_in_tokens_of_the_server(serve):
    def answer(body):
        tokens = 2 * len(body["prompt"].split())
        figures = {"prompt_tokens": tokens, "completion_tokens": body["max_tokens"]}
        return 200, [token(), event(choices=[], usage=figures), DONE]

    _, client = serve(answer)
    client.warm_up()
    assert len(client.words(100).split()) == 50


def test_prompts_are_of_the_seed():
    first, same, other = (load.Client("", "", {}, seed).words(40) for seed in ("1", "1", "2"))
    assert first == same
    assert first != other


def answer_of(times, tokens):
    made = load.Answer(load.Request("", tokens), due=0.0, end=times[-1])
    made.token_times, made.tokens_out = times, tokens
    return made


def test_rates_by_hand():
    slow = answer_of([1.0, 2.0, 3.0, 4.0], 4)
    late = answer_of([2.0, 2.5, 3.0, 3.5, 4.0, 4.5], 6)
    # Between 2.0 and 4.0: two tokens of the first, four of the second.
    assert load.rate_all_active([slow, late]) == pytest.approx(3.0)
    assert load.output_rate([slow, late]) == pytest.approx(10 / 4.5)
    assert slow.tok_s == pytest.approx(1.0)
    with pytest.raises(load.LoadError):
        load.rate_all_active([answer_of([1.0, 2.0], 2), answer_of([3.0, 4.0], 2)])


def test_percentiles_by_hand():
    assert load.percentile([4, 1, 3, 2], 0.5) == 2.5
    assert load.percentile([10], 0.99) == 10
    assert load.percentile(range(101), 0.99) == pytest.approx(99)
