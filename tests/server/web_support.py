"""What tests of the page write into it, and answers that no server of theirs gives."""

import json

from server_case import SOURCE


class Prompt:
    """One of the texts that the bundled model answers: it goes on from the beginning of an answer."""

    def __init__(self, name):
        self.document, _, rest = (SOURCE / f"{name}.txt").read_text().rpartition("\nQuestion: ")
        self.question, _, lead = rest.partition("\nAnswer:")
        self.form = "{document}\nQuestion: {question}\nAnswer:" + lead
        self.text = self.document + "\nQuestion: " + rest
        self.answer = (SOURCE / f"{name}.answer").read_text().strip()


def set_value(selector, text):
    return f"""{{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(text)};
               e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}})); }}"""


def sse(*events):
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def canned(pieces, layers, text, cached=0, depth=None):
    """A stream as the server sends it: pieces, what each layer kept, an answer, the account."""
    head = {"id": "x", "object": "text_completion"}
    progress = {"total": len(pieces), "cache": cached, "processed": len(pieces) // 2, "time_ms": 5}
    prune = {"spec": "canned", "active": True, "kept_per_layer": [len(pieces)] * 10, "flops": 3, "flops_dense": 12,
             "revived": 0, **({"depth": depth} if depth else {})}
    return sse({**head, "choices": [{"index": 0, "text": ""}], "prompt_progress": progress, "prompt_pieces": pieces,
                "prompt_layers": [{"layer": l, **kept} for l, kept in enumerate(layers)]},
               {**head, "choices": [{"index": 0, "text": text}]},
               {**head, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "prune": prune,
                "timings": {"predicted_per_second": 12.5}},
               {**head, "choices": [], "usage": {"prompt_tokens": len(pieces), "completion_tokens": 3,
                                                 "prompt_tokens_details": {"cached_tokens": cached}}})
