"""The `openai` client, as its users use it."""

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_the_model_is_listed(client, daemon):
    models = client.models.list().data
    assert [model.id for model in models] == [daemon.name] == ["SmolLM2-135M-Instruct.Q4_1"]
    assert client.models.retrieve(daemon.name).id == daemon.name


@pytest.mark.sanitized
def test_chat_gives_a_sensible_answer(client, daemon):
    answer = client.chat.completions.create(
        model=daemon.name, messages=QUESTION, temperature=0, max_tokens=48
    )
    choice = answer.choices[0]
    assert "Paris" in choice.message.content
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 48
    assert answer.object == "chat.completion" and answer.model == daemon.name


@pytest.mark.sanitized
def test_streamed_chat_is_the_same_text(client, daemon):
    asked = dict(model=daemon.name, messages=QUESTION, temperature=0, max_tokens=48)
    whole = client.chat.completions.create(**asked)
    text, finish, usage = "", None, None
    for chunk in client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_conversation_goes_on(client, daemon):
    messages = [
        {"role": "user", "content": "My favourite animal is the otter."},
        {"role": "assistant", "content": "Otters are lovely."},
        {"role": "user", "content": "Which animal is my favourite?"},
    ]
    answer = client.chat.completions.create(
        model=daemon.name, messages=messages, temperature=0, max_tokens=24
    )
    assert "tter" in answer.choices[0].message.content


def test_completions_whole_and_streamed(client, daemon):
    asked = dict(
        model=daemon.name, prompt="The first five primes are", temperature=0, max_tokens=12
    )
    whole = client.completions.create(**asked)
    assert whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length"
    streamed = "".join(
        chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)
    )
    assert streamed == whole.choices[0].text != ""


def test_several_prompts_and_several_choices(client, daemon):
    answer = client.completions.create(
        model=daemon.name,
        prompt=["One", "Two", "Three"],
        n=2,
        temperature=0.8,
        seed=3,
        max_tokens=6,
    )
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert answer.usage.completion_tokens == 36
    again = client.completions.create(
        model=daemon.name,
        prompt=["One", "Two", "Three"],
        n=2,
        temperature=0.8,
        seed=3,
        max_tokens=6,
    )
    assert [c.text for c in again.choices] == [c.text for c in answer.choices]
    # The two choices of a prompt are different draws of one seed.
    assert any(answer.choices[i].text != answer.choices[i + 1].text for i in (0, 2, 4))


def test_logprobs(client, daemon):
    answer = client.chat.completions.create(
        model=daemon.name,
        messages=QUESTION,
        temperature=0,
        max_tokens=4,
        logprobs=True,
        top_logprobs=3,
    )
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 4
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        # Greedy: what was chosen is the likeliest.
        assert token.top_logprobs[0].token == token.token
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True)
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content


def test_stop_strings_end_the_text_before_them(client, daemon):
    asked = dict(model=daemon.name, prompt="1, 2, 3, 4, 5, 6,", temperature=0, max_tokens=40)
    free = client.completions.create(**asked).choices[0].text
    assert " 9," in free
    stopped = client.completions.create(**asked, stop=" 9,").choices[0]
    assert stopped.text == free[: free.index(" 9,")]
    assert stopped.finish_reason == "stop"
    both = client.completions.create(**asked, stop=["not there", " 8"]).choices[0]
    assert both.text == free[: free.index(" 8")]
    streamed = "".join(
        chunk.choices[0].text
        for chunk in client.completions.create(**asked, stop=" 9,", stream=True)
    )
    assert streamed == stopped.text


def test_sampling_is_repeatable_by_seed(client, daemon):
    def text(seed, **more):
        return (
            client.chat.completions.create(
                model=daemon.name,
                messages=QUESTION,
                temperature=1.3,
                seed=seed,
                max_tokens=24,
                **more,
            )
            .choices[0]
            .message.content
        )

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(6)}) > 1


def test_a_bias_forbids_and_forces(client, daemon):
    ids = (
        client.completions.create(
            model=daemon.name,
            prompt="The capital of France is",
            temperature=0,
            max_tokens=1,
            extra_body={"return_token_ids": True},
        )
        .choices[0]
        .model_extra["token_ids"]
    )
    forbidden = (
        client.completions.create(
            model=daemon.name,
            prompt="The capital of France is",
            temperature=0,
            max_tokens=1,
            logit_bias={str(ids[0]): -100},
            extra_body={"return_token_ids": True},
        )
        .choices[0]
        .model_extra["token_ids"]
    )
    assert forbidden != ids
    forced = client.completions.create(
        model=daemon.name,
        prompt="The capital of France is",
        temperature=0,
        max_tokens=3,
        logit_bias={"28": 100},
        extra_body={"return_token_ids": True},
    )
    assert forced.choices[0].model_extra["token_ids"] == [28, 28, 28]


def test_errors_are_the_clients_exceptions(client, daemon):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=daemon.name, messages=QUESTION, temperature=-1)
    assert bad.value.param == "temperature" and "-1" in bad.value.message
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="another", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=daemon.name, messages=[])
    with pytest.raises(openai.BadRequestError) as early:
        client.chat.completions.create(model=daemon.name, messages=QUESTION, top_p=7, stream=True)
    assert early.value.param == "top_p"


def test_the_asynchronous_client_and_a_broken_off_stream(daemon):
    import asyncio

    async def run():
        async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(
                model=daemon.name,
                messages=QUESTION,
                max_tokens=2000,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == 5:
                    break
            await stream.close()
            answer = await client.chat.completions.create(
                model=daemon.name, messages=QUESTION, temperature=0, max_tokens=4
            )
            return answer.usage.completion_tokens

    assert asyncio.run(run()) == 4
