"""Streams, progress, and what cancels them."""

import asyncio
import gc
import io
import os
import signal
import threading
import time
import unittest
from unittest import mock

from coppice_llm import Cancelled, Chunk, InvalidRequest, Stream, _progress
from coppice_llm._calls import Scope, run_many
from coppice_llm.stream import Events
from support import DOCUMENT, LONG, PROMPT, ModelCase

ENDLESS = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}


class Streams(ModelCase):
    def test_chunks(self):
        stream = self.llm.stream(LONG, max_tokens=8, temperature=0)
        self.assertIsInstance(stream, Stream)
        chunks = list(stream)
        whole = self.llm.generate(LONG, max_tokens=8, temperature=0)
        self.assertIsInstance(chunks[0], Chunk)
        self.assertEqual("".join(map(str, chunks)), whole.text)
        self.assertEqual([token for chunk in chunks for token in chunk.token_ids], whole.token_ids)
        read = [chunk for chunk in chunks if chunk.progress]
        self.assertEqual(read[-1].progress[:2], (whole.prompt_tokens, whole.prompt_tokens))
        self.assertEqual(read[-1].metrics["total"], whole.prompt_tokens)
        self.assertGreater(read[-1].metrics["prompt_per_second"], 0)
        last = next(chunk for chunk in chunks if "ttft" in chunk.metrics)
        self.assertEqual(last.metrics["completion_tokens"], 8)
        self.assertGreater(last.metrics["tokens_per_second"], 0)
        self.assertEqual(last.finish_reason, "length")

    def test_answer_of_a_stream(self):
        """Put together, a stream is the reply that the request has without one."""
        options = {"max_tokens": 6, "temperature": 0, "prune": "coppice:min=0", "trace": True, "logprobs": 2, "cache_prompt": False}
        stream = self.llm.stream(LONG, **options)
        streamed, whole = stream.whole(), self.llm.generate(LONG, **options)
        self.assertEqual(streamed.text, whole.text)
        self.assertEqual(streamed.token_ids, whole.token_ids)
        self.assertEqual(streamed.logprobs, whole.logprobs)
        self.assertEqual(streamed.prompt_tokens, whole.prompt_tokens)
        self.assertEqual(streamed.completion_tokens, whole.completion_tokens)
        self.assertEqual(streamed.finish_reason, whole.finish_reason)
        self.assertEqual(streamed.prune, whole.prune)
        self.assertEqual(streamed.trace.pieces(), whole.trace.pieces())
        self.assertEqual(sorted(streamed.raw), sorted(whole.raw))

    def test_end_is_an_end(self):
        stream = self.llm.stream(PROMPT, max_tokens=2)
        list(stream)
        self.assertEqual(list(stream), [])
        self.assertRaises(StopIteration, next, stream)

    def test_error(self):
        with self.assertRaises(InvalidRequest) as caught:
            next(self.llm.stream(PROMPT, prune="nix"))
        self.assertEqual(caught.exception.param, "prune")

    def test_close_cancels(self):
        stream = self.llm.stream(PROMPT, **ENDLESS)
        for chunk in stream:
            if chunk.text:
                break
        stream.close()
        self.assertTrue(self.idle())
        with self.assertRaises(Cancelled):
            list(stream)
        self.works()

    def test_leaving_the_loop_cancels(self):
        for chunk in self.llm.stream(PROMPT, **ENDLESS):
            if chunk.text:
                break
        del chunk
        gc.collect()
        self.assertTrue(self.idle())
        with self.llm.create_completion(PROMPT, stream=True, **ENDLESS) as chunks:
            next(chunks)
        self.assertTrue(self.idle())
        self.works()

    def works(self):
        self.assertEqual(len(self.llm.generate(PROMPT, max_tokens=3, temperature=0).token_ids), 3)


class Progress(ModelCase):
    def test_callable(self):
        seen = []
        answer = self.llm.generate(DOCUMENT[:6000], max_tokens=2, temperature=0, progress=lambda *what: seen.append(what),
                                   cache_prompt=False)
        self.assertEqual(answer.text, self.llm.generate(DOCUMENT[:6000], max_tokens=2, temperature=0).text)
        self.assertEqual(seen[-1][:2], (answer.prompt_tokens, answer.prompt_tokens))
        self.assertEqual([done for done, _, _ in seen], sorted(done for done, _, _ in seen))
        self.assertTrue(all(left is None or left >= 0 for _, _, left in seen))
        self.llm.ask(LONG, "Who?", max_tokens=1, progress=lambda *what: seen.append("asked"))
        self.llm.read(LONG + "More.", progress=lambda *what: seen.append("read"))
        self.assertIn("asked", seen)
        self.assertIn("read", seen)

    def test_exception_cancels(self):
        for error in (KeyboardInterrupt, ZeroDivisionError):
            def report(*_, error=error):
                raise error("from the callable")
            with self.assertRaisesRegex(error, "from the callable"):
                self.llm.generate(LONG, progress=report, cache_prompt=False, **ENDLESS)
            self.assertTrue(self.idle())
        self.assertEqual(len(self.llm.generate(PROMPT, max_tokens=3).token_ids), 3)

    def test_exception_cancels_a_list(self):
        def report(*_):
            raise ZeroDivisionError
        with self.assertRaises(ZeroDivisionError):
            self.llm.generate([LONG, PROMPT, "a", "b", "c", "d"], progress=report, **ENDLESS)
        self.assertTrue(self.idle())

    def test_the_error_of_a_list_is_that_of_the_call_which_failed(self):
        """The others end as cancelled, and may do so before it has raised."""
        cancelled = threading.Event()

        def one(item):
            if item:
                cancelled.set()
                raise Cancelled("by the other")
            cancelled.wait()
            time.sleep(0.2)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            run_many(one, [0, 1, 1], 3, Scope())
        with self.assertRaises(Cancelled):
            run_many(one, [1, 1], 2, Scope())

    def test_interrupt(self):
        """Ctrl-C during a call reaches the caller, and ends the request."""
        for call in (lambda: self.llm.generate(PROMPT, **ENDLESS),
                     lambda: list(self.llm.stream(PROMPT, **ENDLESS)),
                     lambda: self.llm.generate([PROMPT, "The"], **ENDLESS)):
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                call()
            timer.join()
            self.assertTrue(self.idle())
        self.assertEqual(len(self.llm.generate(PROMPT, max_tokens=3).token_ids), 3)

    def test_true(self):
        """A bar of tqdm where it is installed, else a line on a terminal, else nothing."""
        class Terminal(io.StringIO):
            def isatty(self):
                return True
        with mock.patch.dict("sys.modules", {"tqdm": None, "tqdm.auto": None}), mock.patch("sys.stderr", Terminal()) as terminal:
            self.llm.generate(LONG, max_tokens=1, progress=True, cache_prompt=False)
        self.assertRegex(terminal.getvalue(), r"prompt: [\d,]+ of 7\d\d tokens")
        with mock.patch.dict("sys.modules", {"tqdm": None, "tqdm.auto": None}), mock.patch("sys.stderr", io.StringIO()) as file:
            self.llm.generate(LONG, max_tokens=1, progress=True)
        self.assertEqual(file.getvalue(), "")
        bar = mock.Mock(n=0)
        module = mock.Mock(tqdm=mock.Mock(return_value=bar))
        with mock.patch.dict("sys.modules", {"tqdm": module, "tqdm.auto": module}):
            report = _progress.reporter(True)
            report(5, 10, None)
            report(10, 10, 0.0)
        self.assertEqual(module.tqdm.call_args.kwargs["total"], 10)
        bar.close.assert_called_once()


class Asyncio(ModelCase):
    def test_hundred_tasks(self):
        prompts = [f"{PROMPT}{number}" for number in range(100)]

        async def ask():
            return await asyncio.gather(*(self.llm.agenerate(p, max_tokens=6, temperature=0) for p in prompts))

        together = asyncio.run(ask())
        alone = [self.llm.generate(prompt, max_tokens=6, temperature=0, cache_prompt=False) for prompt in prompts]
        self.assertEqual([a.token_ids for a in together], [a.token_ids for a in alone])

    def test_hundred_streams(self):
        async def text(prompt):
            return "".join([chunk.text async for chunk in self.llm.astream(prompt, max_tokens=4, temperature=0)])

        async def ask():
            return await asyncio.gather(*(text(f"{PROMPT}{number}") for number in range(100)))

        together = asyncio.run(ask())
        for number in range(0, 100, 9):
            self.assertEqual(together[number], self.llm.generate(f"{PROMPT}{number}", max_tokens=4, temperature=0).text)

    def test_cancel(self):
        async def leave():
            task = asyncio.ensure_future(self.llm.agenerate(PROMPT, **ENDLESS))
            await asyncio.sleep(0.3)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        async def leave_stream():
            async def read():
                async for _ in self.llm.astream(PROMPT, **ENDLESS):
                    pass
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(read(), 0.3)

        for coroutine in (leave, leave_stream):
            asyncio.run(coroutine())
            self.assertTrue(self.idle())
        self.assertEqual(len(self.llm.generate(PROMPT, max_tokens=3).token_ids), 3)

    def test_error(self):
        async def ask():
            await self.llm.agenerate(PROMPT, prune="nix")

        async def stream():
            async for _ in self.llm.astream(PROMPT, temperature="hot"):
                pass
        for coroutine, param in ((ask, "prune"), (stream, "temperature")):
            with self.assertRaises(InvalidRequest) as caught:
                asyncio.run(coroutine())
            self.assertEqual(caught.exception.param, param)


class Threads(ModelCase):
    def test_four(self):
        """Answers of threads that share a model are those of each alone, pruned ones too."""
        jobs = [{"prune": prune, "prompts": text} for prune in (None, "coppice:min=0", "lazyllm:min=0", "fastkv:min=0")
                for text in (LONG, DOCUMENT[:3000])]

        def run(job):
            return self.llm.generate(job["prompts"], max_tokens=8, temperature=0, prune=job["prune"], cache_prompt=False).token_ids

        alone, found = [run(job) for job in jobs], [None] * len(jobs)

        def work(first):
            for number in range(first, len(jobs), 4):
                found[number] = run(jobs[number])

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, alone)

    def test_python_runs_meanwhile(self):
        """The GIL is free while the engine computes: another thread counts."""
        stop, count = threading.Event(), [0]

        def tick():
            while not stop.is_set():
                count[0] += 1
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        self.llm.generate(DOCUMENT[:8000], max_tokens=2, cache_prompt=False)
        stop.set()
        thread.join()
        self.assertGreater(count[0], 5)


class EventBytes(unittest.TestCase):
    def test_cut_anywhere(self):
        data = b': a comment\n\ndata: {"a": "\xc3\xa4"}\n\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n{"error"'
        for cut in range(len(data)):
            events = Events()
            found = [*events.feed(data[:cut]), *events.feed(data[cut:])]
            self.assertEqual(found, [{"a": "ä"}, {"b": 2}])
            self.assertEqual(events.rest(), b'{"error"')


if __name__ == "__main__":
    unittest.main()
