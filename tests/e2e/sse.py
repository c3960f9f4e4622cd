"""A strict reader of server-sent events, and what every stream of the OpenAI API must keep."""

import json


class Stream:
    """The events of a response, as they come."""

    def __init__(self, response):
        assert response.status == 200, (response.status, response.read())
        assert response.headers["Content-Type"].startswith("text/event-stream")
        self._response = response
        self.done = False

    def __iter__(self):
        return self

    def __next__(self):
        """The next event's JSON; ends after [DONE]."""
        if self.done:
            raise StopIteration
        lines = []
        while True:
            line = self._response.readline()
            assert line, "the stream ended without [DONE]"
            assert line.endswith(b"\n") and b"\r" not in line, line
            if line == b"\n":
                if lines:
                    break
                continue
            if line.startswith(b":"):  # a comment keeps the connection busy
                continue
            assert line.startswith(b"data: "), line
            lines.append(line[len(b"data: ") : -1].decode())
        assert len(lines) == 1, lines
        if lines[0] == "[DONE]":
            self.done = True
            assert self._response.read() == b"", "something follows [DONE]"
            raise StopIteration
        return json.loads(lines[0])


class Choice:
    def __init__(self):
        self.text = ""
        self.role = None
        self.finish_reason = None
        self.token_ids = []
        self.logprobs = []
        self.chunks = 0


class Result:
    """A stream read to its end."""

    def __init__(self):
        self.choices = {}
        self.usage = None
        self.id = None


def read(response, include_usage=False):
    """Reads a whole stream and holds it to the rules."""
    result = Result()
    heads = set()
    for chunk in Stream(response):
        assert "error" not in chunk, chunk
        heads.add((chunk["id"], chunk["created"], chunk["model"], chunk["object"]))
        assert len(heads) == 1, "id, created, model and object stay the same"
        if not chunk["choices"]:
            assert include_usage and result.usage is None, "one chunk with usage, the last"
            result.usage = chunk["usage"]
            continue
        assert result.usage is None, "usage comes last"
        assert chunk.get("usage") is None
        for part in chunk["choices"]:
            _add(result.choices.setdefault(part["index"], Choice()), part)
    assert (result.usage is not None) == include_usage
    assert all(choice.finish_reason for choice in result.choices.values())
    result.id = next(iter(heads))[0]
    return result


def _add(choice, part):
    assert choice.finish_reason is None, "nothing follows a finish_reason"
    if "delta" in part:
        delta = part["delta"]
        if choice.chunks == 0:
            assert delta["role"] == "assistant"
        choice.role = choice.role or delta.get("role")
        choice.text += delta.get("content") or ""
        if part.get("logprobs"):
            choice.logprobs += part["logprobs"]["content"]
    else:
        choice.text += part["text"]
    choice.chunks += 1
    choice.token_ids += part.get("token_ids") or []
    choice.finish_reason = part.get("finish_reason")
