"""A model that has a chat template, made of one that has none."""

from gguf_edit import edit

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{{ mood|default('') }} {% endif %}")


def write_chat_model(source, target, template=TEMPLATE):
    """A copy of a GGUF file that has a chat template."""
    edit(source, target, texts={"tokenizer.chat_template": template})
