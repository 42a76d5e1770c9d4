"""Headless Chromium for tests, through the DevTools protocol over a pipe. Standard library only."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NAMES = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome-headless-shell"]
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
        "Home": 36, "End": 35}


def find_browser():
    """COPPICE_BROWSER, or the first of the usual programs; None where there is none."""
    return os.environ.get("COPPICE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


def run_tests(names):
    """Runs the tests of a program whose globals are `names`. They find the browser as BROWSER; without one, they skip."""
    program = find_browser()
    if program is None:
        print("skipped: no Chromium; `apt-get install chromium`, or name one by COPPICE_BROWSER")
        sys.exit(77)
    names["BROWSER"] = Browser(program)
    try:
        unittest.main(verbosity=2)
    finally:
        names["BROWSER"].close()


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="coppice-browser-", ignore_cleanup_errors=True)
        theirs_in, self.to = os.pipe()
        self.come_from, theirs_out = os.pipe()

        def wire():  # the protocol's pipes are descriptors 3 and 4
            high = [os.dup(theirs_in), os.dup(theirs_out)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "--no-first-run",
                   "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                   "--disable-extensions", "--force-color-profile=srgb", "--font-render-hinting=none", "--mute-audio",
                   "--disable-features=Translate,MediaRouter,OptimizationHints", "--lang=en-US"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to run as root with one
        self.process = subprocess.Popen([program, *options, "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=wire, close_fds=False)
        os.close(theirs_in)
        os.close(theirs_out)
        self.unread = b""
        self.number = 0
        self.listeners = {}  # session: function of an event
        self.call("Browser.getVersion", timeout=60)

    def read(self, deadline):
        while b"\0" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.come_from], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.come_from, 1 << 20)
            if not part:
                raise ConnectionError("the browser has ended")
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, timeout=30, **params):
        self.number += 1
        mine = self.number
        message = {"id": mine, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + timeout
        while True:
            reply = self.read(deadline)
            if reply.get("id") == mine:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']}")
                return reply["result"]
            if "method" in reply and reply.get("sessionId") in self.listeners:
                self.listeners[reply["sessionId"]](reply["method"], reply["params"])

    def close(self):
        with contextlib.suppress(Exception):
            self.call("Browser.close", timeout=5)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.come_from)
        self.folder.cleanup()


class Tab:
    """A page of its own, without what other pages keep."""

    def __init__(self, browser, url, width=1280, height=900, mobile=False, scheme="light"):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.problems = []    # exceptions, failed policies
        self.requests = []    # (method, URL, body)
        self.answers = {}     # end of a path: (status, body) in place of the server's
        self.paused = []
        browser.listeners[self.session] = self.on_event
        for domain in ["Page", "Runtime", "Log", "Network", "DOM"]:
            self.call(domain + ".enable")
        self.size(width, height, mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, timeout=30, **params):
        return self.browser.call(method, session=self.session, timeout=timeout, **params)

    def on_event(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"].get("exception", {}).get("description") or str(params))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error" and params["entry"]["source"] != "network":
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            request = params["request"]
            self.requests.append((request["method"], request["url"], request.get("postData")))
        elif method == "Fetch.requestPaused":
            self.paused.append(params)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1,
                  mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def answer_instead(self, path, body, status=200, kind="text/event-stream"):
        """From now on requests whose URL ends in `path` get this answer."""
        self.answers[path] = (status, body, kind)
        self.call("Fetch.enable", patterns=[{"urlPattern": "*" + p} for p in self.answers])

    def serve_paused(self):
        while self.paused:
            request = self.paused.pop()
            path = next(p for p in self.answers if request["request"]["url"].endswith(p))
            status, body, kind = self.answers[path]
            self.call("Fetch.fulfillRequest", requestId=request["requestId"], responseCode=status,
                      responseHeaders=[{"name": "Content-Type", "value": kind}], body=base64.b64encode(body.encode()).decode())

    def js(self, expression, timeout=30):
        result = self.call("Runtime.evaluate", timeout=timeout, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        end = time.monotonic() + seconds
        while True:
            value = self.js(expression)
            if value:
                return value
            self.serve_paused()
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {expression}; problems: {self.problems}")
            time.sleep(0.02)

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def visible(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)}).checkVisibility()")

    def click(self, selector):
        """Clicks the middle of the element, again if the page moved it from under the mouse meanwhile."""
        for _ in range(10):
            x, y = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                           " window.clicked = false;"
                           " addEventListener('click', event => window.clicked = e.contains(event.target), {once: true, capture: true});"
                           " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()")
            self.click_at(x, y)
            if self.js("window.clicked"):
                return
        raise AssertionError(f"ten clicks missed {selector}")

    def click_at(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key, shift=False):
        params = {"key": key, "code": {" ": "Space"}.get(key, key), "windowsVirtualKeyCode": KEYS.get(key, 0), "modifiers": 8 if shift else 0}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **params, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def write(self, text):
        """Into what has the focus, as a paste does."""
        self.call("Input.insertText", text=text)

    def focus(self):
        return self.js("document.activeElement.id || document.activeElement.className || document.activeElement.tagName")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.browser.listeners.pop(self.session, None)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
