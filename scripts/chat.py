"""A small terminal chat against a running server, streaming.

    python scripts/chat.py [--url http://127.0.0.1:30000] [--system TEXT] [--temperature T] [--max-tokens N]

An empty line is skipped, /new starts over, /quit or Ctrl-D leaves, Ctrl-C stops an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any


def request(url: str, body: dict[str, Any] | None = None) -> Any:
    """Open a URL, with a JSON body if there is one; an HTTP error becomes a message for a person."""
    data = None if body is None else json.dumps(body).encode()
    try:
        return urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}))
    except urllib.error.HTTPError as error:
        detail = json.loads(error.read() or b"{}").get("error", {}).get("message", error.reason)
        sys.exit(f"the server refused: {detail}")
    except urllib.error.URLError as error:
        sys.exit(f"no server at {url} ({error.reason}); start one in another terminal: make serve")


def deltas(response: Any) -> Iterator[str]:
    """The text pieces of a streamed chat completion."""
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            sys.exit(f"\nthe server gave up: {event['error']['message']}")
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Chat with a running server.")
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="of the server")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--temperature", type=float, default=0.3, help="default: 0.3; small models wander at 1")
    parser.add_argument("--max-tokens", type=int, default=512, help="most tokens of an answer; default: 512")
    options = parser.parse_args()

    with request(f"{options.url}/v1/models") as response:
        model = json.load(response)["data"][0]["id"]
    print(f"Chatting with {model}. /new starts over, /quit leaves.")
    start = [{"role": "system", "content": options.system}] if options.system else []
    messages = list(start)
    while True:
        try:
            text = input("\nyou> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text == "/quit":
            return
        if text == "/new":
            messages = list(start)
            continue
        if not text:
            continue
        messages.append({"role": "user", "content": text})
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "stream": True,
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }
        answer = ""
        print(f"\n{model}> ", end="", flush=True)
        with request(f"{options.url}/v1/chat/completions", body) as response:
            try:
                for piece in deltas(response):
                    answer += piece
                    print(piece, end="", flush=True)
            except KeyboardInterrupt:
                print(" [stopped]", end="")
        print()
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
