"""Networks from tokens to tokens of the `transformers` package, built from tiny configurations."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.from_transformers import TOKENS, package


class Answer(nn.Module):
    """Only the logits of a network from tokens to tokens, which would also give out its encoder's features."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.net(input_ids, attention_mask, decoder_input_ids=decoder_input_ids).logits


def t5(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.T5Config(
        vocab_size=TOKENS,
        d_model=int(64 * width),
        d_kv=int(16 * width),
        d_ff=int(128 * width),
        num_layers=2,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
    )
    return Answer(t.T5ForConditionalGeneration(config))


def bart(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.BartConfig(
        vocab_size=TOKENS,
        d_model=int(64 * width),
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=int(128 * width),
        decoder_ffn_dim=int(128 * width),
        max_position_embeddings=40,
        use_cache=False,
    )
    return Answer(t.BartForConditionalGeneration(config))
