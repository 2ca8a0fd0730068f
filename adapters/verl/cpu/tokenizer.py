"""The lab's tokenizer: one token a byte, plus the marks and role names of a ChatML chat.

Three demands shape it. Transformers builds Qwen2's own tokenizer class for a Qwen2 model whatever was saved,
so the vocabulary has to be byte-level letters. verl's chat handling for Qwen needs a newline to be exactly
one token. And prompts must be short, because attention over the prompt is most of the lab's work; so role
names are single tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tokenizer() -> Any:
    """Make the tokenizer: 256 byte letters, then special tokens, then role names."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([END_OF_TEXT, TURN_START, TURN_END])
    core.add_tokens([AddedToken(role, normalized=False) for role in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=TURN_END, pad_token=END_OF_TEXT, chat_template=CHAT_TEMPLATE
    )


def save_tokenizer(folder: Path) -> None:
    """Save the tokenizer so that `AutoTokenizer` loads it for a Qwen2 model."""
    build_tokenizer().save_pretrained(folder)
    # Qwen2's class would otherwise take its own defaults for tokens that are not named here.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.update(unk_token=None, bos_token=None, add_prefix_space=False)
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
