"""Relations between symbolic numbers are guarded for each of them."""

import torch

import lamina_dynamo


def test_equal_relations_of_two_numbers_are_both_guarded():
    def f(x, a, b):
        if a >= 5:
            x = x + 1
        if b >= 5:
            x = x + 10
        return x

    captured = lamina_dynamo.optimize("eager", dynamic=True)(f)
    for a, b in [(7, 7), (7, 3), (3, 7), (3, 3), (9, 2), (2, 9)]:
        assert torch.equal(captured(torch.zeros(2), a, b), f(torch.zeros(2), a, b)), (a, b)
