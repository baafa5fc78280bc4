"""Short chat templates in the shape of the known families, and tokenizers that need no download."""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = """{%- if messages[0].role != 'system' %}<|im_start|>system
You are helpful.<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LLAMA3 = """{{- bos_token }}{%- for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""

# Strict alternation; the system text travels to the last user message, as in Mistral's own templates.
MISTRAL = """{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}
{%- for m in rest %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if m.role == 'user' %}{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\n\n' + m.content + '[/INST]' }}
{%- else %}{{- '[INST] ' + m.content + '[/INST]' }}{%- endif %}
{%- else %}{{- ' ' + m.content + eos_token }}{%- endif %}
{%- endfor %}"""

GEMMA = """{{ bos_token }}{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set role = 'model' if m.role == 'assistant' else m.role %}
{{- '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

# Think blocks of earlier turns are dropped; those after the last user message are kept.
QWEN3 = """{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}
{%- endif %}{%- endfor %}{%- for m in messages %}{%- if m.role == 'assistant' %}
{%- set content = m.content.split('</think>')[-1].lstrip('\n') %}
{%- if loop.index0 > ns.last %}{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' + content + '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>assistant\n' + content + '<|im_end|>\n' }}{%- endif %}
{%- else %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""

# Past replies end in <|end|>, the last one of all in <|return|>; the system text becomes a developer message.
HARMONY = """<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>
{%- for m in messages %}
{%- if m.role == 'system' %}<|start|>developer<|message|># Instructions

{{ m.content }}<|end|>
{%- elif m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>
{%- else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}
{%- if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""


@dataclass(frozen=True)
class Family:
    """A template, its special tokens (the first is bos), how a reply ends, and what follows a closed reply."""

    name: str
    template: str
    specials: tuple[str, ...]
    eos: str
    between: str
    close: str
    tail: str
    system_role: bool = True


FAMILIES = [
    Family("chatml", CHATML, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>",
           "\n<|im_start|>user\n", "<|im_end|>", "<|im_end|>\n<|im_start|>assistant\n"),
    Family("llama3", LLAMA3, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                              "<|end_of_text|>"), "<|eot_id|>",
           "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
           "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    Family("mistral", MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]"), "</s>", "[INST] ", "</s>", "[/INST]"),
    Family("gemma", GEMMA, ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), "<end_of_turn>",
           "\n<start_of_turn>user\n", "<end_of_turn>", "<end_of_turn>\n<start_of_turn>model\n", False),
    Family("qwen3", QWEN3, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>",
           "\n<|im_start|>user\n", "<|im_end|>", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    Family("harmony", HARMONY, ("<|startoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>",
                                "<|return|>", "<|call|>"), "<|return|>",
           "<|start|>user<|message|>", "<|end|>", "<|end|><|start|>assistant"),
]  # fmt: skip


def byte_tokenizer(specials: tuple[str, ...], eos: str, template: str | None) -> PreTrainedTokenizerFast:
    """One token a byte, so that any text survives; ``specials`` are added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: n for n, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=specials[0], eos_token=eos)
    tokenizer.chat_template = template
    return tokenizer


def family_tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """The byte-level tokenizer of a family, with its template."""
    return byte_tokenizer(family.specials, family.eos, family.template)


def blank_prefix_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """As sentencepiece does it: blanks are "▁", and one is put before every text."""
    chars = [chr(n) for n in range(33, 127)] + ["\n", "▁", "<unk>"]
    core = Tokenizer(models.BPE(vocab={char: n for n, char in enumerate(chars)}, merges=[], unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer
