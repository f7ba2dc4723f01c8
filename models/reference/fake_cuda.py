"""PyTorch's CUDA decisions without a GPU: what has to be answered by hand so that a training step runs on fake
tensors on the device "cuda".

FakeTensorMode alone gets through forward. Four things ask for a real device:

1. The autograd engine asks whether the device has a context, and the CUDA build throws where there is no driver. The
   virtual table of its hooks is copied with that one entry replaced: there is none, so no stream is remembered.
   Backward then runs in the calling thread (the engine's own threads would be one per real device).
2. autocast turns itself off where no GPU is found.
3. scaled_dot_product_attention asks the device which kernel it can run. The choice is made here instead: flash for
   half precision without a mask and heads of at most 256; memory-efficient otherwise.
4. LSTM and GRU ask cuDNN. They are sent to its operator directly, whose meta kernel says that the reserve space takes
   0 bytes: a real GPU keeps more. Under autocast each weight is cast for itself.

Written for torch 2.15.0, whose `AcceleratorHooksInterface` begins with two destructors, `isBuilt`, `isAvailable` and
`hasPrimaryContext`.
"""

import contextlib
import ctypes
import os

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

HAS_PRIMARY_CONTEXT = 4  # its place in the virtual table
BEFORE, ENTRIES = 2, 200  # words kept in front of and behind the table's address
_kept = []  # what C++ refers to must outlive it


def answer_no_context():
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    hooks = library._ZN2at6detail12getCUDAHooksEv
    hooks.restype = ctypes.c_void_p
    word = ctypes.sizeof(ctypes.c_void_p)
    instance = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (BEFORE + ENTRIES))()
    ctypes.memmove(table, instance[0] - BEFORE * word, (BEFORE + ENTRIES) * word)
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda _, index: False)
    table[BEFORE + HAS_PRIMARY_CONTEXT] = ctypes.cast(answer, ctypes.c_void_p).value
    _kept.extend([table, answer])
    instance[0] = ctypes.addressof(table) + BEFORE * word


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """aten/src/ATen/native/transformers/attention.cpp with the kernel chosen as stated above."""
    assert not enable_gqa
    query, key, value = (_autocast(t) for t in (query, key, value))
    half = query.dtype in (torch.float16, torch.bfloat16)
    head = query.size(-1)
    if half and attn_mask is None and head <= 256:
        padding = -head % 8
        if padding:
            query, key, value = (F.pad(t, (0, padding)) for t in (query, key, value))
        scale = head**-0.5 if scale is None else scale
        out = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out[..., :head] if padding else out
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        attn_mask = attn_mask.expand(*query.shape[:-1], key.size(-2))
    needs_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needs_gradient, dropout_p, is_causal, scale=scale
    )[0]


def recurrent(mode):
    """torch._VF.lstm or .gru on padded batches, as aten/src/ATen/native/cudnn/RNN.cpp calls the operator."""

    def run(x, hidden, weights, bias, layers, dropout, training, bidirectional, batch_first):
        state = hidden if isinstance(hidden, (tuple, list)) else (hidden,)
        x, state, weights = _autocast(x), [_autocast(h) for h in state], [_autocast(w) for w in weights]
        size = state[0].size(-1)
        with torch.autocast("cuda", enabled=False):
            out, h, c, _, _ = torch.ops.aten._cudnn_rnn(
                x, weights, 4 if bias else 2, x.new_empty(0), state[0], state[1] if len(state) > 1 else None, mode, size, 0,
                layers, batch_first, dropout, training, bidirectional, [], None,
            )
        return (out, h, c) if len(state) > 1 else (out, h)

    return run


LSTM, GRU = 2, 3  # cuDNN's modes


def recurrent_backward(x, weights, stride, buffer, hx, cx, *_):
    """The operator has no meta kernel for backward: gradients of the input, of both states and of each weight."""
    return torch.empty_like(x), torch.empty_like(hx), cx if cx is None else torch.empty_like(cx), [
        torch.empty_like(weight) for weight in weights
    ]


def _autocast(tensor):
    """What is on autocast's lower-precision list."""
    if torch.is_autocast_enabled("cuda") and tensor.dtype is torch.float32:
        return tensor.to(torch.get_autocast_dtype("cuda"))
    return tensor


@contextlib.contextmanager
def fake_cuda():
    """Everything inside runs on fake tensors, as it would on a GPU."""
    if not _kept:
        answer_no_context()
        torch.cuda.amp.common.amp_definitely_not_available = lambda: False
        torch.cuda.is_bf16_supported = lambda *_, **__: True
        F.scaled_dot_product_attention = attention
        FakeTensorMode.__deepcopy__ = lambda mode, _: mode  # copies of a module stay in its mode
        torch.backends.mha.set_fastpath_enabled(False)  # one kernel for a whole encoder layer in inference
        library = torch.library.Library("aten", "IMPL", "Meta")
        library.impl("_cudnn_rnn_backward", recurrent_backward)
        _kept.append(library)
        torch._VF.lstm, torch._VF.gru = recurrent(LSTM), recurrent(GRU)
        torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor  # it looks at values
    with FakeTensorMode(), torch.autograd.set_multithreading_enabled(False):
        yield
