"""The calls of the contract with `vllm serve`: good and bad ones of every kind, each a line that the reader lets pass.

Three servers answer them: one generates (with tools, reasoning and an adapter), one embeds, one classifies.
"""

from typing import Any, NamedTuple

from tests.acceptance.engine_thread import CHAT, MODEL, chat

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
SCORE = "/v1/score"
RERANK = "/v1/rerank"
CLASSIFY = "/v1/classify"
POOLING = "/v1/pooling"
ADAPTER = "test-adapter"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


class Call(NamedTuple):
    """One call; `name` says what is special about it."""

    name: str
    url: str
    body: dict[str, Any]
    grammar_fails: bool = False
    """vLLM's server blames itself (500) for a grammar that does not compile; we blame the call (400)."""


def _chat(name: str, **parameters: Any) -> Call:
    return Call(name, CHAT, chat(**parameters))


def _messages(name: str, *messages: dict[str, Any], **parameters: Any) -> Call:
    return _chat(name, messages=list(messages), **parameters)


def _schema(name: str, schema: Any, **parameters: Any) -> Call:
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return _chat(name, response_format=shape, **parameters)


def _structured(name: str, **constraint: Any) -> Call:
    return _chat(name, structured_outputs=constraint)


def _complete(name: str, **parameters: Any) -> Call:
    return Call(
        name, COMPLETIONS, {"model": MODEL, "prompt": "One two", "max_tokens": 4, "temperature": 0, **parameters}
    )


def _respond(name: str, **parameters: Any) -> Call:
    body = {"model": MODEL, "input": "Say ok.", "max_output_tokens": 8, "temperature": 0, **parameters}
    return Call(name, RESPONSES, body)


def _post(name: str, url: str, **body: Any) -> Call:
    return Call(name, url, {"model": MODEL, **body})


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _tool(name: str = "find", parameters: Any = None) -> dict[str, Any]:
    shape = {"type": "object", "properties": {"q": {"type": "boolean"}}, "required": ["q"]}
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": parameters or shape}}


def _history(arguments: Any) -> tuple[dict[str, Any], ...]:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": arguments}}
    return (
        _user("go"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        _user("Say ok."),
    )


_YES_NO = {"type": "object", "properties": {"a": {"enum": ["yes", "no"]}}, "required": ["a"]}
_NAMED = {"type": "function", "function": {"name": "find"}}
_STORIES = ["One two", "Three four five"]

CHATS = (
    _chat("chat"),
    _chat("two choices", n=2, temperature=0.8, seed=1),
    _chat("seed", temperature=0.7, seed=7, top_p=0.9, top_k=20, min_p=0.01),
    _chat("logprobs", logprobs=True, top_logprobs=3),
    _chat("prompt logprobs", prompt_logprobs=1),
    _chat("stop string", stop=["\n"], max_tokens=20),
    _chat("stop token", stop_token_ids=[5], max_tokens=20, ignore_eos=True),
    _chat("penalties", presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1),
    _chat("least tokens", min_tokens=4, max_tokens=6),
    _chat("no limit of tokens", max_tokens=None, stop=["\n"]),
    _chat("both limits", max_completion_tokens=3),
    _chat("text as a number of tokens", max_tokens="4"),
    _chat("bias", logit_bias={"100": 50.0}, max_tokens=2),
    _chat("words that must not come", bad_words=["ok"]),
    _chat("ids of tokens", return_token_ids=True),
    _chat("a field nobody knows", flavour="rye"),
    _chat("stream said to be off", stream=False, stream_options=None),
    _messages("system", {"role": "system", "content": "Be brief."}, _user("Say ok.")),
    _messages("text parts", _user([{"type": "text", "text": "Say"}, {"type": "text", "text": " hi."}])),
    _messages("answer to be continued", _user("a"), {"role": "assistant", "content": "b"},
              add_generation_prompt=False, continue_final_message=True),
    _messages("odd role", {"role": "bot", "content": "hi"}),
    _messages("empty content", _user("")),
    _messages("no content", {"role": "user"}),
    _messages("no role", {"content": "hi"}),
    _messages("no parts", _user([])),
    _messages("part without its text", _user([{"type": "text"}])),
    _messages("part of an unknown type", _user([{"type": "smell", "smell": "rose"}])),
    _messages("image inside", _user([{"type": "image_url", "image_url": {"url": PIXEL}}])),
    _messages("image on the network", _user([{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/n.png"}}])),
    _messages("image in a file", _user([{"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}])),
    _chat("prompt too long", text="yes " * 4000),
    _chat("limit too high", max_tokens=1_000_000),
    _chat("no tokens at all", max_tokens=0),
    _chat("negative limit", max_tokens=-5),
    _chat("half a token", max_tokens=16.5),
    _chat("temperature below zero", temperature=-0.5),
    _chat("temperature in words", temperature="hot"),
    _chat("top_p above one", top_p=1.5),
    _chat("top_p zero", top_p=0),
    _chat("fraction of top_k", top_k=0.01),
    _chat("no choice", n=0),
    _chat("far too many choices", n=1_000_000),
    _chat("choices without chance", n=2),
    _chat("seed of 64 bits", seed=1 << 63),
    _chat("seed of 65 bits", seed=1 << 64),
    _chat("penalty too high", presence_penalty=5),
    _chat("no repetition penalty", repetition_penalty=0),
    _chat("more than the most tokens", min_tokens=9, max_tokens=4),
    _chat("empty stop string", stop=[""]),
    _chat("number as stop string", stop=7),
    _chat("too many logprobs", logprobs=True, top_logprobs=100_000),
    _chat("logprobs not asked for", top_logprobs=3),
    _chat("bias of no token", logit_bias={"99999": 5.0}),
    _chat("bias in words", logit_bias={"five": 5.0}),
    _chat("token that is not there", stop_token_ids=[-5]),
    _chat("a template of its own", chat_template="{{ messages[0]['content'] }}"),
    _chat("priority", priority=5),
    _chat("truncated prompt", truncate_prompt_tokens=4),
)  # fmt: skip

STRUCTURED = (
    _chat("any JSON object", response_format={"type": "json_object"}, max_tokens=24),
    _schema("JSON schema", _YES_NO, max_tokens=24),
    _structured("choice", choice=["red", "green"]),
    _structured("regex", regex="(ab){2}"),
    _structured("grammar", grammar='root ::= "yes" | "no"'),
    _structured("schema without an envelope", json=_YES_NO),
    _schema("type that is none", {"type": "objekt"}),
    _schema("reference to nothing", {"$ref": "#/$defs/absent"}),
    _schema("reference to the network", {"$ref": "http://127.0.0.1:9/schema.json"}),
    _schema("text as schema", "no schema"),
    _schema("list of item types", {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]})._replace(
        grammar_fails=True
    ),
    _chat("format without a schema", response_format={"type": "json_schema"}),
    _chat("format of an unknown type", response_format={"type": "object", "properties": {}}),
    _structured("broken regex", regex="([a-z"),
    _structured("broken grammar", grammar="root ::= ("),
    _structured("no choices", choice=[]),
    _structured("two constraints", choice=["a"], regex="b"),
    _structured("no constraint"),
    _structured("structural tag that is none", structural_tag="{}"),
)

TOOLS = (
    _chat("tool not to be used", tools=[_tool()], tool_choice="none"),
    _chat("tool if wanted", tools=[_tool()], tool_choice="auto"),
    _chat("tool by name", tools=[_tool()], tool_choice=_NAMED, max_tokens=24),
    _chat("tool required", tools=[_tool()], tool_choice="required", max_tokens=40),
    _chat("many tools", tools=[_tool(f"tool_{i}") for i in range(25)]),
    _messages("tool history", *_history('{"q": true}'), tools=[_tool()]),
    _messages("damaged tool history", *_history('{"text": "he said "hi""}')),
    _messages("object as arguments", *_history({"q": True})),
    _messages("answer of no tool", _user("go"), {"role": "tool", "tool_call_id": "zz", "content": "x"}),
    _chat("tool that is not there", tools=[_tool()], tool_choice={"type": "function", "function": {"name": "absent"}}),
    _chat("tool by an unknown way", tools=[_tool()], tool_choice="perhaps"),
    _chat("choice without tools", tool_choice="auto"),
    _chat("no tools", tools=[]),
    _chat("tool with broken parameters", tools=[_tool(parameters={"type": "objekt"})], tool_choice=_NAMED),
    _chat("required tool with broken parameters", tools=[_tool(parameters={"type": "objekt"})], tool_choice="required"),
    _chat("tool without a name", tools=[{"type": "function", "function": {"description": "x"}}]),
)

OTHERS = (
    Call("chat with the adapter", CHAT, chat(model=ADAPTER)),
    Call("completion with the adapter", COMPLETIONS, {"model": ADAPTER, "prompt": "One two", "max_tokens": 4}),
    Call("no such model", CHAT, chat(model="no-such/model-7b")),
    _chat("thinking is off", chat_template_kwargs={"enable_thinking": False}),
    _chat("reasoning left out", include_reasoning=False),
    _chat("effort", reasoning_effort="low"),
    _chat("effort nobody knows", reasoning_effort="heroic"),
    _complete("completion"),
    _complete("two prompts", prompt=_STORIES),
    _complete("prompt of token ids", prompt=[5, 6, 7]),
    _complete("two choices of each prompt", prompt=_STORIES, n=2, temperature=0.8, seed=1),
    _complete("prompt repeated", echo=True),
    _complete("logprobs of a completion", logprobs=2),
    _complete("logprobs of the prompt", logprobs=1, echo=True, max_tokens=1),
    _complete("structured completion", structured_outputs={"choice": ["red", "green"]}),
    _complete("token that no prompt has", prompt=[5, 99999]),
    _complete("empty prompt", prompt=""),
    _complete("no prompts", prompt=[]),
    _complete("number as prompt", prompt=5),
    _complete("no prompt", prompt=None),
    _complete("text before and after", suffix="end"),
    _complete("best of", best_of=2),
    _complete("beam search", use_beam_search=True, n=2),
    _complete("prompt of embeddings", prompt=None, prompt_embeds="AAAA"),
    _respond("response"),
    _respond("response with instructions", instructions="Be brief."),
    _respond("response to messages", input=[{"role": "user", "content": "Say ok."}]),
    _respond("response as JSON", text={"format": {"type": "json_schema", "name": "s", "schema": _YES_NO}}),
    _respond("response in the background", background=True),
    _respond("response stored in the background", background=True, store=True),
    _respond("response to one before", previous_response_id="resp_absent"),
    _respond("response without input", input=None),
    _respond("response with a negative limit", max_output_tokens=-1),
    _respond("response with a tool", tools=[{"type": "function", "name": "find", "parameters": {"type": "object"}}]),
    _respond("response with a required tool", tool_choice="required", tools=[
        {"type": "function", "name": "find", "parameters": {"type": "object"}}]),
    _respond("response with a web search", tools=[{"type": "web_search_preview"}]),
    _respond("response to an image", input=[{"role": "user", "content": [
        {"type": "input_image", "detail": "auto", "image_url": "http://127.0.0.1:9/n.png"}]}]),
    _post("embedding of a generating model", EMBEDDINGS, input="hi"),
    _post("classification of a generating model", CLASSIFY, input="hi"),
)  # fmt: skip

GENERATING = (*CHATS, *STRUCTURED, *TOOLS, *OTHERS)

EMBEDDING = (
    _post("embedding", EMBEDDINGS, input="One two"),
    _post("two embeddings", EMBEDDINGS, input=_STORIES),
    _post("embedding of token ids", EMBEDDINGS, input=[5, 6, 7]),
    _post("embedding in base64", EMBEDDINGS, input="One two", encoding_format="base64"),
    _post("embedding of messages", EMBEDDINGS, messages=[_user("Say ok.")]),
    _post("shorter embedding", EMBEDDINGS, input="One two", dimensions=8),
    _post("truncated input", EMBEDDINGS, input="yes " * 4000, truncate_prompt_tokens=16),
    _post("input too long", EMBEDDINGS, input="yes " * 4000),
    _post("no input", EMBEDDINGS, input=[]),
    _post("embedding of nothing", EMBEDDINGS),
    _post("embedding in an unknown format", EMBEDDINGS, input="a", encoding_format="clay"),
    _post("score by embeddings", SCORE, text_1="One", text_2=_STORIES),
    _post("rerank by embeddings", RERANK, query="One", documents=_STORIES, top_n=1),
    _post("pooling", POOLING, input="One two"),
    _post("pooling of an unknown task", POOLING, input="One two", task="boil"),
    Call("chat with an embedding model", CHAT, chat()),
    Call("embedding by no such model", EMBEDDINGS, {"model": "nobody", "input": "a"}),
)

CLASSIFYING = (
    _post("class", CLASSIFY, input="One two"),
    _post("two classes", CLASSIFY, input=_STORIES),
    _post("class of nothing", CLASSIFY),
    _post("class of a number", CLASSIFY, input=5),
    _post("class of a text too long", CLASSIFY, input="yes " * 4000),
    _post("score", SCORE, text_1="One", text_2=_STORIES),
    _post("score of pairs", SCORE, text_1=_STORIES, text_2=_STORIES),
    _post("score of uneven lists", SCORE, text_1=_STORIES, text_2=["a", "b", "c"]),
    _post("score of nothing", SCORE),
    _post("rerank", RERANK, query="One", documents=_STORIES),
    _post("rerank to the first", RERANK, query="One", documents=_STORIES, top_n=1),
    _post("rerank without documents", RERANK, query="One", documents=[]),
    _post("embedding of a classifier", EMBEDDINGS, input="a"),
)
