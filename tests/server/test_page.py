"""The chat page, in headless Chromium and as files.

Whatever a page does here, it must speak to its own server alone, make no markup from text and break
none of its own rules: every test in the browser ends with a look at that. Without playwright or
Chromium those tests are skipped, and say so.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from lily.completion import Chunk

from tests.gate.scripted import Scripted

from .processes import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGES = ("/", "/page/page.css", "/page/page.js", "/page/answer.js", "/page/markdown.js")
EVIL = '<img src=x onerror="window.pwned = 1"><script>window.pwned = 1</script>'


# --- files ---


def test_files_and_their_rules(scripted):
    server = scripted(api_keys=("sk-lily",))
    for path in (*PAGES, "/page/stream.js", "/page/gate.js", "/page/icon.svg"):
        reply = server.get(path)  # without the key, for which the page itself asks
        assert reply.status == 200
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        text = reply.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), "no outside resource"
        assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|eval\()", text)
    html = server.get("/").body.decode()
    assert not re.search(r"<style|\son\w+=|\sstyle=|<script(?![^>]*src=)", html)
    assert server.request("HEAD", "/").status == 200
    key = {"Authorization": "Bearer sk-lily"}
    for path in ("/page/", "/page/../page.py", "/page/..%2fpage.py", "/page/%2e%2e/app.py"):
        assert server.get(path, headers=key).status == 404


# --- browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="THE PAGE IS NOT TESTED: playwright is not installed"
    )
    if CHROMIUM is None:
        pytest.skip("THE PAGE IS NOT TESTED: there is no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        # Its sandbox needs rights that containers do not give; the pages are our own.
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


class Tab:
    """A tab with the page of a server; ``page`` is playwright's."""

    def __init__(self, browser: Any, server: Any, **options: Any) -> None:
        self._context = browser.new_context(**options)
        self.page = self._context.new_page()
        self.page.set_default_timeout(20_000)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self._url = server.url
        self.page.goto(server.url)

    def send(self, text: str) -> None:
        self.page.get_by_label("Message").fill(text)
        self.page.keyboard.press("Enter")

    def answer(self, index: int = 0) -> Any:
        """The answer of that number."""
        return self.page.locator("article.assistant").nth(index)

    def finished(self, index: int = 0) -> Any:
        """The answer of that number, when it is over."""
        self.page.locator("article.assistant:not([aria-busy])").nth(index).wait_for()
        return self.answer(index)

    def shows(self, text: str) -> None:
        """Wait until the last answer's text has it."""
        self.page.locator("article.assistant .words").last.get_by_text(text).wait_for()

    def close(self) -> None:
        """Look whether the page has kept to the rules."""
        assert self.asked
        assert all(url.startswith(self._url + "/") for url in self.asked), self.asked
        assert self.page.evaluate("window.pwned") is None
        assert self.page.locator("#log img, #log script, #log a, #log iframe").count() == 0
        # The browser itself tells of a refused request, and of each breach of the policy.
        assert [text for text in self.said if "401" not in text] == []
        self._context.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """Opens the page of a server; all tabs are looked at in the end."""
    made: list[Tab] = []

    def opened(server: Any, **options: Any) -> Tab:
        made.append(Tab(browser, server, **options))
        return made[-1]

    yield opened
    for one in made:
        one.close()


def test_a_chat(tab, server):
    here = tab(server)
    here.page.locator("#model").get_by_text("lily-tiny").wait_for()
    here.send("What is 7 + 5?")
    answer = here.finished()
    assert answer.locator(".words").inner_text() == "7 + 5 = 12"
    thinking = answer.locator("details.thinking")
    assert thinking.locator("summary").inner_text() == "Thought"
    assert not thinking.locator(".thoughts").is_visible()
    thinking.locator("summary").click()
    assert thinking.locator(".thoughts").is_visible()
    speed = answer.locator(".speed").inner_text().replace("\u00a0", " ")
    assert re.search(r"[\d.,]+ tok/s · first token \d+\.\d\d s · \d+ tokens · prompt \d+", speed)
    here.send("And 3 + 4?")
    assert "from cache" in here.finished(1).locator(".speed").inner_text().replace("\u00a0", " ")
    here.page.get_by_role("button", name="New chat").click()
    assert here.page.locator("article").count() == 0
    assert here.page.locator("#welcome").is_visible()


def test_text_comes_as_it_forms_and_stop_stops(tab, scripted):
    server = scripted()
    here = tab(server)
    here.page.get_by_label("Message").press_sequentially("one")
    here.page.keyboard.press("Shift+Enter")
    here.page.keyboard.type("two")
    here.page.keyboard.press("Enter")
    call = server.engine.call()
    assert call.prompt == [{"role": "user", "content": "one\ntwo"}]
    call.say("Once ")
    here.shows("Once")
    assert here.page.get_by_role("log").get_attribute("aria-busy") == "true"
    call.say("upon")
    here.shows("Once upon")
    here.page.get_by_role("button", name="Stop").click()
    wait_until(call.ended.is_set, "stopped")
    assert "stopped" in here.finished().locator(".speed").inner_text()
    assert here.page.get_by_role("log").get_attribute("aria-busy") == "false"
    here.send("Go on")
    second = server.engine.call(1)
    roles = [message["role"] for message in second.prompt]
    assert roles == ["user", "assistant", "user"]
    assert second.prompt[1]["content"] == "Once upon"
    second.say("a time")
    here.shows("a time")
    here.page.keyboard.press("Escape")
    wait_until(second.ended.is_set, "stopped")
    here.finished(1)
    here.send("Wait")  # and before the first token: the question can be sent again
    here.page.get_by_role("button", name="Stop").click()
    wait_until(server.engine.call(2).ended.is_set, "stopped")
    here.page.wait_for_function("document.getElementById('text').value === 'Wait'")
    assert here.page.locator("article").count() == 4


def test_the_gates_preview(tab, scripted, monkeypatch):
    monkeypatch.setattr("lily.server.app.BuiltIn", lambda country: Scripted())
    here = tab(scripted())
    here.page.get_by_label("Message").fill(f"\U0001f600 ann@example.org {EVIL}")
    here.page.get_by_role("button", name="Check").click()
    result = here.page.locator("#gate-result")
    result.get_by_text("This could leave with placeholders.").wait_for()
    assert result.locator("mark").all_inner_texts() == ["ann@example.org"]
    assert EVIL in result.locator(".seen").first.inner_text()
    assert "[EMAIL_1_" in result.locator(".seen").last.inner_text()
    assert "e-mail address" in result.locator("li").inner_text()
    assert here.page.locator("article").count() == 0, "nothing was sent"


def test_hostile_text_stays_text(tab, scripted):
    server = scripted()
    here = tab(server)
    here.send(EVIL)
    call = server.engine.call()
    call.items.put(Chunk("", reasoning=EVIL))
    texts = [EVIL, f"**{EVIL}**", f"`{EVIL}`", f"# {EVIL}", f"- {EVIL}", f"```{EVIL[:4]}\n{EVIL}"]
    texts.append("\n```\n[link](javascript:window.pwned=1) ![image](x) <b>not bold</b>")
    for text in texts:
        for at in range(0, len(text), 7):
            call.say(text[at : at + 7])
        call.say("\n\n")
    call.end()
    answer = here.finished()
    assert here.page.locator("article.user .words").inner_text() == EVIL
    assert answer.locator(".thoughts").text_content() == EVIL
    shown = answer.locator(".words").text_content()
    assert shown.count(EVIL) == 6
    assert "<b>not bold</b>" in shown
    assert "[link](javascript:window.pwned=1) ![image](x)" in shown
    here.send("again")
    server.engine.call(1).fail(RuntimeError(EVIL))
    here.page.get_by_role("status").get_by_text("internal error").wait_for()


def test_a_little_markdown(tab, scripted):
    text = (
        "## Title\n\nOne **bold** and *slanted* and `co**de`, 2 * 3 * 4, a_b_c.\n\n"
        "1. first\n2. second\n   - inner **x**\n   - other\n3. third\n\n"
        "```python\ndef f():\n\n    return '**'\n```\nBehind.\n\n~~~\nnot closed\n"
    )
    server = scripted(lambda call: (call.say(*text), call.end()))
    here = tab(server)
    here.send("x")
    words = here.finished().locator(".words")
    found = words.evaluate(
        """root => ({
          top: [...root.children].map(node => node.tagName),
          bold: [...root.querySelectorAll('strong')].map(node => node.textContent),
          slanted: [...root.querySelectorAll('em')].map(node => node.textContent),
          code: [...root.querySelectorAll('code')].map(node => node.textContent),
          items: [...root.querySelectorAll(':scope > ol > li')].length,
          inner: [...root.querySelectorAll('ol ul li')].map(node => node.textContent),
          language: root.querySelector('figcaption span').textContent,
        })"""
    )
    assert found == {
        "top": ["H4", "P", "OL", "FIGURE", "P", "FIGURE"],
        "bold": ["bold", "x"],
        "slanted": ["slanted"],
        "code": ["co**de", "def f():\n\n    return '**'", "not closed\n"],
        "items": 3,
        "inner": ["inner x", "other"],
        "language": "python",
    }
    assert "2 * 3 * 4, a_b_c." in words.inner_text()


@pytest.mark.parametrize(
    "text",
    [
        "`" * 20_000,
        "`a``b" * 4_000,
        "**a *b" * 4_000,
        "# " + " " * 20_000 + "x",
        "~~~" + "a" * 20_000 + "`",
        "\n".join(" " * n + "- x" for n in range(2_000)),
        "- x\n" * 5_000,
    ],
)
def test_a_model_that_repeats_itself_does_not_hang_the_page(tab, scripted, text):
    server = scripted(lambda call: (call.say(text, "\n\nend"), call.end()))
    here = tab(server)
    here.send("x")
    here.finished()
    here.shows("end")


def test_a_key_is_asked_for(tab, scripted):
    server = scripted(lambda call: (call.say("hello"), call.end()), api_keys=("sk-lily",))
    here = tab(server)
    field = here.page.get_by_label(re.compile("asks for a key"))
    field.fill("wrong")
    here.page.keyboard.press("Enter")
    field.wait_for()  # it asks again
    here.page.keyboard.press("Escape")
    here.send("hi")
    field.fill("sk-lily")
    here.page.get_by_role("button", name="Use this key").click()
    assert here.finished().locator(".words").inner_text() == "hello"
    assert here.page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert here.page.evaluate("document.cookie") == ""


def test_settings(tab, scripted):
    server = scripted(lambda call: (call.say("hello"), call.end()))
    here = tab(server)
    here.send("hi")
    here.finished()
    first = server.engine.call()
    assert "temperature" not in first.options
    assert first.options["enable_thinking"] is True
    here.page.get_by_role("button", name="Settings").click()
    here.page.get_by_label("System prompt").fill("Be brief.")
    here.page.get_by_label("Temperature").fill("0.3")
    here.page.get_by_label("Think before answering").uncheck()
    here.page.get_by_label("Colours").select_option("Dark")
    here.page.get_by_role("button", name="Done").click()
    here.send("again")
    here.finished(1)
    second = server.engine.call(1)
    assert second.prompt[0] == {"role": "system", "content": "Be brief."}
    assert [message["content"] for message in second.prompt[1:]] == ["hi", "hello", "again"]
    assert second.options["temperature"] == 0.3
    assert second.options["enable_thinking"] is False
    assert brightness(here) < 60


def test_tool_calls_are_shown_and_their_results_go_back(tab, server):
    function = {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
    here = tab(server)
    here.page.get_by_role("button", name="Settings").click()
    here.page.get_by_label("Temperature").fill("0")
    here.page.get_by_text("Tools", exact=True).click()
    tools = here.page.get_by_label(re.compile("A JSON list of functions"))
    tools.fill("{")
    assert "no JSON" in here.page.get_by_role("alert").inner_text()
    tools.fill(json.dumps([{"type": "function", "function": function}]))
    here.page.get_by_role("button", name="Done").click()
    here.send("What is the weather in Paris?")
    call = here.finished().locator(".call")
    assert call.locator("p").inner_text() == "Calls get_weather"
    assert json.loads(call.locator("pre").inner_text()) == {"city": "Paris"}
    here.page.get_by_label("Result of get_weather").fill("18 degrees, sunny")
    here.page.get_by_role("button", name="Send results").click()
    words = here.finished(1).locator(".words").inner_text()
    assert "18" in words or "sun" in words


def brightness(here: Tab) -> float:
    """Of the ground, 0 to 255."""
    colour = here.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(tab, scripted, scheme):
    text = "word " * 300 + "long" * 100 + "\n\n```\n" + "code " * 100 + "\n```\n"
    server = scripted(lambda call: (call.say(*text.split("word")), call.say("end"), call.end()))
    size = {"width": 360, "height": 640}
    here = tab(server, viewport=size, color_scheme=scheme, has_touch=True, is_mobile=True)
    here.page.get_by_label("Message").fill("x" * 200)
    here.page.keyboard.press("Enter")  # a line, where the screen is the keyboard
    here.page.get_by_role("button", name="Send").click()
    here.finished()
    assert server.engine.call().prompt[0]["content"] == "x" * 200
    width = here.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360
    assert here.page.evaluate("document.getElementById('scroller').scrollWidth") <= 360
    assert here.page.get_by_text("end", exact=True).is_visible()  # it has followed the text
    for name in ("New chat", "Settings", "Send"):
        box = here.page.get_by_role("button", name=name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["height"] >= 36
    assert (brightness(here) > 128) == (scheme == "light")


def test_everything_has_a_name(tab, server):
    """For those who hear the page: each control has a name, and so have the parts."""
    here = tab(server)
    nameless = here.page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, select')]
          .filter(node => !(node.labels?.length || node.textContent.trim()))
          .map(node => node.outerHTML)"""
    )
    assert nameless == []
    assert here.page.get_by_role("log", name="Chat").get_attribute("aria-live") == "polite"
    assert here.page.get_by_role("status").count() == 1
    assert here.page.evaluate("document.documentElement.lang") == "en"
    here.page.keyboard.press("Shift+Tab")
    assert here.page.evaluate("document.activeElement.tagName") in ("BUTTON", "MAIN")
