"""Text, speech and sequence models of the TorchBench list, written here from the published architectures.

Every builder takes ``small`` and returns ``(module, args)``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head attention with an optional boolean mask (True where a pair may be seen), computed step by step as
    the early papers did.
    """

    def __init__(self, dim: int, heads: int, drop: float = 0.1):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.drop = nn.Dropout(drop)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        n = q.size(0)
        q, k, v = (
            lin(x).view(n, -1, self.heads, self.head_dim).transpose(1, 2)
            for lin, x in ((self.q, q), (self.k, k), (self.v, v))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        x = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(x.transpose(1, 2).contiguous().view(n, -1, self.heads * self.head_dim))


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int, act, drop: float = 0.1):
        super().__init__()
        self.a, self.b, self.drop, self.act = nn.Linear(dim, hidden), nn.Linear(hidden, dim), nn.Dropout(drop), act

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.drop(self.act(self.a(x))))


def sinusoid_table(length: int, dim: int) -> Tensor:
    """The position encoding of Vaswani et al., 2017, section 3.5: (length, dim)."""
    pos = torch.arange(length).unsqueeze(1).float()
    rate = torch.exp(torch.arange(0, dim, 2).float() * -(math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2], table[:, 1::2] = torch.sin(pos * rate), torch.cos(pos * rate)
    return table


# --------------------------------------------------------------------------- BERT, pre-norm residuals (Devlin et al.,
# 2019)
class ScaledNorm(nn.Module):
    """Layer norm written with mean and std, as early implementations did: differs from nn.LayerNorm in eps and in the
    unbiased std.
    """

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.scale, self.shift, self.eps = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.scale * (x - mean) / (std + self.eps) + self.shift


class TanhGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class PreNormBlock(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.attend, self.feed = Attention(dim, heads), FeedForward(dim, 4 * dim, TanhGELU())
        self.norm1, self.norm2, self.drop = ScaledNorm(dim), ScaledNorm(dim), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.drop(self.attend(h, h, h, mask))
        return self.drop(x + self.drop(self.feed(self.norm2(x))))


class BERTPretraining(nn.Module):
    def __init__(self, vocab: int, dim: int, layers: int, heads: int, length: int):
        super().__init__()
        self.token, self.segment = nn.Embedding(vocab, dim, padding_idx=0), nn.Embedding(3, dim, padding_idx=0)
        self.register_buffer("position", sinusoid_table(length, dim).unsqueeze(0))
        self.blocks = nn.ModuleList(PreNormBlock(dim, heads) for _ in range(layers))
        self.is_next, self.masked, self.drop = nn.Linear(dim, 2), nn.Linear(dim, vocab), nn.Dropout(0.1)

    def forward(self, tokens: Tensor, segments: Tensor):
        mask = (tokens > 0).unsqueeze(1).repeat(1, tokens.size(1), 1).unsqueeze(1)
        x = self.drop(self.token(tokens) + self.position[:, : tokens.size(1)] + self.segment(segments))
        for block in self.blocks:
            x = block(x, mask)
        return F.log_softmax(self.is_next(x[:, 0]), -1), F.log_softmax(self.masked(x), -1)


def bert_pytorch(small: bool):
    vocab, dim, layers, heads, n, length = (200, 32, 2, 2, 2, 16) if small else (20005, 768, 12, 12, 16, 128)
    net = BERTPretraining(vocab, dim, layers, heads, max(length, 128))
    return net, (torch.randint(0, vocab, (n, length)), torch.randint(0, 3, (n, length)))


# --------------------------------------------------------------------------- Transformer (Vaswani et al., 2017)
class PostNormLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int, cross: bool):
        super().__init__()
        self.attend = Attention(dim, heads)
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.cross = Attention(dim, heads) if cross else None
        self.norm2 = nn.LayerNorm(dim, eps=1e-6) if cross else None
        self.feed, self.norm3, self.drop = (
            FeedForward(dim, hidden, F.relu),
            nn.LayerNorm(dim, eps=1e-6),
            nn.Dropout(0.1),
        )

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.norm1(x + self.drop(self.attend(x, x, x, mask)))
        if self.cross is not None:
            x = self.norm2(x + self.drop(self.cross(x, memory, memory, memory_mask)))
        return self.norm3(x + self.drop(self.feed(x)))


class Seq2SeqTransformer(nn.Module):
    def __init__(self, vocab: int, dim: int, layers: int, heads: int, hidden: int, length: int = 200, pad: int = 1):
        super().__init__()
        self.pad, self.dim = pad, dim
        self.source, self.target = nn.Embedding(vocab, dim, padding_idx=pad), nn.Embedding(vocab, dim, padding_idx=pad)
        self.register_buffer("table", sinusoid_table(length, dim).unsqueeze(0))
        self.encoder = nn.ModuleList(PostNormLayer(dim, heads, hidden, cross=False) for _ in range(layers))
        self.decoder = nn.ModuleList(PostNormLayer(dim, heads, hidden, cross=True) for _ in range(layers))
        self.project = nn.Linear(dim, vocab, bias=False)
        self.norm_e, self.norm_d, self.drop = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(0.1)
        self.project.weight = self.target.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask = (source != self.pad).unsqueeze(-2).unsqueeze(1)
        size = target.size(1)
        causal = (1 - torch.triu(torch.ones((1, size, size), device=target.device), diagonal=1)).bool()
        target_mask = ((target != self.pad).unsqueeze(-2) & causal).unsqueeze(1)
        x = self.norm_e(self.drop(self.source(source) + self.table[:, : source.size(1)].clone().detach()))
        for layer in self.encoder:
            x = layer(x, source_mask)
        y = self.norm_d(self.drop(self.target(target) + self.table[:, :size].clone().detach()))
        for layer in self.decoder:
            y = layer(y, target_mask, x, source_mask)
        logits = self.project(y) * self.dim**-0.5
        return logits.view(-1, logits.size(2))


def attention_is_all_you_need(small: bool):
    vocab, dim, layers, heads, hidden, n, length = (
        (100, 32, 2, 2, 64, 2, 14) if small else (9521, 512, 6, 8, 2048, 256, 31)
    )
    net = Seq2SeqTransformer(vocab, dim, layers, heads, hidden)
    return net, (torch.randint(2, vocab, (n, length)), torch.randint(2, vocab, (n, length - 1)))


# --------------------------------------------------------------------------- BERT for span extraction with word
# pieces pooled to words
class WordBert(nn.Module):
    """Each word is the first of its pieces; a span head gives start and end scores of every word."""

    def __init__(self, vocab: int, dim: int, layers: int, heads: int, length: int):
        super().__init__()
        self.token, self.position, self.kind = (
            nn.Embedding(vocab, dim, padding_idx=0),
            nn.Embedding(length, dim),
            nn.Embedding(2, dim),
        )
        self.norm, self.drop = nn.LayerNorm(dim, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList(PostNormLayer(dim, heads, 4 * dim, cross=False) for _ in range(layers))
        self.span = nn.Linear(dim, 2)

    def forward(self, pieces: Tensor, first_piece: Tensor):
        lengths = (pieces != 0).sum(-1)
        longest = int(lengths.max())
        pieces = pieces[:, :longest]
        pos = torch.arange(longest, device=pieces.device).unsqueeze(0)
        kind = (pieces == 2).cumsum(-1).clamp(max=1)
        x = self.drop(self.norm(self.token(pieces) + self.position(pos) + self.kind(kind)))
        mask = (pieces != 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        words = x.gather(1, first_piece.clamp(max=longest - 1).unsqueeze(-1).expand(-1, -1, x.size(-1)))
        scores = self.span(words)
        return scores[..., 0], scores[..., 1]


def fastnlp_bert(small: bool):
    vocab, dim, layers, heads, n, length = (120, 32, 2, 2, 2, 20) if small else (21128, 768, 12, 12, 6, 474)
    pieces = torch.randint(3, vocab, (n, length))
    pieces[:, length // 2] = 2
    return WordBert(vocab, dim, layers, heads, max(512, length)), (
        pieces,
        torch.arange(0, length, 2).expand(n, -1).contiguous(),
    )


# --------------------------------------------------------------------------- Speech-Transformer (Dong et al., 2018)
class SpeechTransformer(nn.Module):
    def __init__(self, features: int, vocab: int, dim: int, layers: int, heads: int, hidden: int, length: int):
        super().__init__()
        self.inp, self.norm_in = nn.Linear(features, dim), nn.LayerNorm(dim)
        self.register_buffer("table", sinusoid_table(length, dim).unsqueeze(0))
        self.encoder = nn.ModuleList(PostNormLayer(dim, heads, hidden, cross=False) for _ in range(layers))
        self.decoder = nn.ModuleList(PostNormLayer(dim, heads, hidden, cross=True) for _ in range(layers))
        self.embed, self.project, self.drop = (
            nn.Embedding(vocab, dim),
            nn.Linear(dim, vocab, bias=False),
            nn.Dropout(0.1),
        )
        self.project.weight = self.embed.weight
        self.scale, self.sos, self.eos = dim**0.5, 1, 2

    def forward(self, frames: Tensor, lengths: Tensor, targets: Tensor):
        n, steps = frames.size(0), frames.size(1)
        mask = frames.new_zeros((n, steps), dtype=torch.bool)
        for i in range(n):
            mask[i, : lengths[i]] = True
        mask = mask[:, None, None, :]
        x = self.drop(self.norm_in(self.inp(frames)) + self.table[:, :steps])
        for layer in self.encoder:
            x = layer(x, mask)
        rows = [t[t != -1] for t in targets]
        ys_in = nn.utils.rnn.pad_sequence(
            [torch.cat([t.new_tensor([self.sos]), t]) for t in rows], batch_first=True, padding_value=self.eos
        )
        ys_out = nn.utils.rnn.pad_sequence(
            [torch.cat([t, t.new_tensor([self.eos])]) for t in rows], batch_first=True, padding_value=-1
        )
        size = ys_in.size(1)
        causal = torch.ones((size, size), device=frames.device, dtype=torch.uint8).tril()[None, None]
        y = self.drop(self.embed(ys_in) * self.scale + self.table[:, :size])
        for layer in self.decoder:
            y = layer(y, causal, x, mask)
        return self.project(y), ys_out


def speech_transformer(small: bool):
    feats, vocab, dim, layers, heads, hidden, n, steps, out = (
        (16, 30, 32, 2, 2, 64, 2, 24, 7) if small else (320, 4233, 512, 6, 8, 2048, 10, 204, 20)
    )
    targets = torch.randint(3, vocab, (n, out))
    targets[0, out - 2 :] = -1
    lengths = torch.linspace(steps // 2, steps, n).long()
    return SpeechTransformer(feats, vocab, dim, layers, heads, hidden, max(600, steps)), (
        torch.randn(n, steps, feats),
        lengths,
        targets,
    )


# --------------------------------------------------------------------------- linear-chain CRF (Rush, 2020, as a
# structured layer over an encoder)
class LinearChain(nn.Module):
    """Log-partition and gold score of a linear-chain CRF, by a scan over time in the log semiring."""

    def __init__(self, vocab: int, states: int, dim: int):
        super().__init__()
        self.word, self.state = nn.Embedding(vocab, dim), nn.Parameter(torch.randn(states, dim) * 0.1)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.project = nn.Linear(dim, vocab)
        self.transition = nn.Linear(dim, states)

    def forward(self, words: Tensor) -> Tensor:
        emission = torch.log_softmax(self.project(self.mlp(self.state)), -1)[:, words].permute(1, 2, 0)
        transition = torch.log_softmax(self.transition(self.state), -1)
        alpha = emission[:, 0] - math.log(transition.size(0))
        for t in range(1, words.size(1)):
            alpha = torch.logsumexp(alpha.unsqueeze(-1) + transition, 1) + emission[:, t]
        return torch.logsumexp(alpha, -1) + 0.0 * self.word(words).sum((1, 2))


def pytorch_struct(small: bool):
    vocab, states, dim, n, length = (60, 5, 8, 2, 9) if small else (4500, 30, 256, 20, 30)
    return LinearChain(vocab, states, dim), (torch.randint(0, vocab, (n, length)),)


# --------------------------------------------------------------------------- Tacotron 2 (Shen et al., 2018)
class LocationAttention(nn.Module):
    def __init__(self, query: int, memory: int, dim: int, filters: int = 32, kernel: int = 31):
        super().__init__()
        self.query, self.memory, self.v = (
            nn.Linear(query, dim, bias=False),
            nn.Linear(memory, dim, bias=False),
            nn.Linear(dim, 1, bias=False),
        )
        self.conv, self.location = (
            nn.Conv1d(2, filters, kernel, padding=kernel // 2, bias=False),
            nn.Linear(filters, dim, bias=False),
        )

    def forward(self, query: Tensor, memory: Tensor, keys: Tensor, weights: Tensor, mask: Tensor):
        loc = self.location(self.conv(weights).transpose(1, 2))
        energy = (
            self.v(torch.tanh(self.query(query.unsqueeze(1)) + loc + keys)).squeeze(-1).masked_fill(mask, -float("inf"))
        )
        weights = F.softmax(energy, dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class Tacotron2(nn.Module):
    def __init__(self, symbols: int, mels: int, embed: int, encoder: int, rnn: int, prenet: int, attention: int):
        super().__init__()
        self.embed = nn.Embedding(symbols, embed)
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(embed if i == 0 else encoder, encoder, 5, padding=2), nn.BatchNorm1d(encoder))
            for i in range(3)
        )
        self.lstm = nn.LSTM(encoder, encoder // 2, 1, batch_first=True, bidirectional=True)
        self.prenet = nn.ModuleList([nn.Linear(mels, prenet, bias=False), nn.Linear(prenet, prenet, bias=False)])
        self.attention_rnn, self.decoder_rnn = nn.LSTMCell(prenet + encoder, rnn), nn.LSTMCell(rnn + encoder, rnn)
        self.attention = LocationAttention(rnn, encoder, attention)
        self.frame, self.gate = nn.Linear(rnn + encoder, mels), nn.Linear(rnn + encoder, 1)
        self.drop, self.drop_state = nn.Dropout(0.5), nn.Dropout(0.1)
        widths = [mels, embed, embed, embed, embed, mels]
        self.postnet = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.BatchNorm1d(b)) for a, b in zip(widths, widths[1:])
        )

    def forward(self, text: Tensor, lengths: Tensor, mels: Tensor):
        x = self.embed(text).transpose(1, 2)
        for conv in self.convs:
            x = self.drop(F.relu(conv(x)))
        packed = nn.utils.rnn.pack_padded_sequence(x.transpose(1, 2), lengths.cpu(), batch_first=True)
        memory, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        mask = torch.arange(memory.size(1), device=text.device) >= lengths.unsqueeze(1)
        frames = torch.cat((mels.new_zeros(1, *mels.shape[:2]), mels.permute(2, 0, 1)))
        for layer in self.prenet:
            frames = self.drop(F.relu(layer(frames)))
        n, rnn = memory.size(0), self.attention_rnn.hidden_size
        ah, ac, dh, dc = (memory.new_zeros(n, rnn) for _ in range(4))
        w = total = memory.new_zeros(n, memory.size(1))
        context, keys = memory.new_zeros(n, memory.size(2)), self.attention.memory(memory)
        outs, gates, aligns = [], [], []
        for frame in frames[:-1]:
            ah, ac = self.attention_rnn(torch.cat((frame, context), -1), (ah, ac))
            context, w = self.attention(self.drop_state(ah), memory, keys, torch.stack((w, total), 1), mask)
            total = total + w
            dh, dc = self.decoder_rnn(torch.cat((ah, context), -1), (dh, dc))
            h = torch.cat((self.drop_state(dh), context), 1)
            outs.append(self.frame(h))
            gates.append(self.gate(h).squeeze(1))
            aligns.append(w)
        mel = torch.stack(outs, 2)
        x = mel
        for i, conv in enumerate(self.postnet):
            x = conv(x)
            x = self.drop(torch.tanh(x) if i < len(self.postnet) - 1 else x)
        return mel, mel + x, torch.stack(gates, 1), torch.stack(aligns, 1)


def tacotron2(small: bool):
    if small:
        net, n, chars, steps, mels, symbols = Tacotron2(20, 8, 16, 16, 24, 12, 8), 2, 12, 6, 8, 20
    else:
        net, n, chars, steps, mels, symbols = Tacotron2(148, 80, 512, 512, 1024, 256, 128), 32, 164, 200, 80, 148
    return net, (
        torch.randint(0, symbols, (n, chars)),
        torch.full((n,), chars) - torch.arange(n).clamp(max=3),
        torch.randn(n, mels, steps),
    )


# --------------------------------------------------------------------------- speaker encoder (Wan et al., 2018):
# LSTMs with projection
class ProjectedLSTM(nn.Module):
    def __init__(self, inp: int, hidden: int, proj: int):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(inp, hidden, batch_first=True), nn.Linear(hidden, proj, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        self.lstm.flatten_parameters()
        return self.linear(self.lstm(x)[0])


class SpeakerEncoder(nn.Module):
    def __init__(self, inp: int, hidden: int, proj: int, layers: int = 3):
        super().__init__()
        self.layers = nn.Sequential(*[ProjectedLSTM(inp if i == 0 else proj, hidden, proj) for i in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.layers(x)[:, -1], p=2, dim=1)


def tts_angular(small: bool):
    return (
        (SpeakerEncoder(8, 24, 8), (torch.randn(2, 10, 8),))
        if small
        else (SpeakerEncoder(40, 768, 256), (torch.randn(64, 50, 40),))
    )


# --------------------------------------------------------------------------- Demucs (Défossez et al., 2019): waveform
# U-Net with an LSTM in the middle
class Demucs(nn.Module):
    def __init__(
        self, sources: int, audio: int, channels: int, depth: int, kernel: int = 8, stride: int = 4, context: int = 3
    ):
        super().__init__()
        self.kernel, self.stride, self.context, self.sources, self.audio, self.depth = (
            kernel,
            stride,
            context,
            sources,
            audio,
            depth,
        )
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        cin, c = audio, channels
        for i in range(depth):
            self.encoder.append(
                nn.Sequential(nn.Conv1d(cin, c, kernel, stride), nn.ReLU(), nn.Conv1d(c, 2 * c, 1), nn.GLU(dim=1))
            )
            out = sources * audio if i == 0 else cin
            up: list[nn.Module] = [
                nn.Conv1d(c, 2 * c, context),
                nn.GLU(dim=1),
                nn.ConvTranspose1d(c, out, kernel, stride),
            ]
            if i > 0:
                up.append(nn.ReLU())
            self.decoder.insert(0, nn.Sequential(*up))
            cin, c = c, 2 * c
        self.lstm, self.linear = nn.LSTM(cin, cin, num_layers=2, bidirectional=True), nn.Linear(2 * cin, cin)

    def valid_length(self, length: int) -> int:
        """The smallest length, at least ``length``, that every layer maps to a whole number of frames."""
        for _ in range(self.depth):
            length = max(1, math.ceil((length - self.kernel) / self.stride) + 1) + self.context - 1
        for _ in range(self.depth):
            length = (length - 1) * self.stride + self.kernel
        return int(length)

    def forward(self, mix: Tensor) -> Tensor:
        x = mix
        saved = [x]
        for enc in self.encoder:
            x = enc(x)
            saved.append(x)
        x = self.linear(self.lstm(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for dec in self.decoder:
            skip = saved.pop()
            cut = skip.size(-1) - x.size(-1)
            x = dec(x + skip[..., cut // 2 : skip.size(-1) - (cut - cut // 2)])
        return x.view(x.size(0), self.sources, self.audio, x.size(-1))


def demucs(small: bool):
    net = Demucs(2, 2, 4, 3) if small else Demucs(4, 2, 64, 6)
    return net, (torch.randn(1 if small else 4, 2, net.valid_length(600 if small else 426888 // 8)),)


BUILDERS = {
    "BERT_pytorch": bert_pytorch,
    "attention_is_all_you_need_pytorch": attention_is_all_you_need,
    "fastNLP_Bert": fastnlp_bert,
    "speech_transformer": speech_transformer,
    "pytorch_struct": pytorch_struct,
    "tacotron2": tacotron2,
    "tts_angular": tts_angular,
    "demucs": demucs,
}
