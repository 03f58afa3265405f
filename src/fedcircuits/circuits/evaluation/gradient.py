"""A circuit as one differentiable operation: gradient training beside EM.

The whole upward pass is one node of torch's graph; its backward pass is the downward pass, which
gives the derivatives by weights, tables and the coefficients of linear leaves directly; for weights
and tables the softmax is part of the node. Leaves of other
families are differentiated by torch and enter as rows of log-values.

Free numbers become parameters by the domains of the families: real as it is, positive by exp, unit
by the logistic function, simplex and weights by softmax, a covariance by its Cholesky factor with
the logarithm of the diagonal; fixed ones are not trained. Those of linear leaves count in the
frames of their variables (statistics.py), which are a part of the module's state. A probability of
zero begins at ``SMALLEST``, from where gradients may raise it; a weight of zero stays zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from fedcircuits.circuits.evaluation.counts import Derivative
from fedcircuits.circuits.evaluation.devices import Loan, here, placed
from fedcircuits.circuits.evaluation.direct import DirectStep, JointStep, JointValues
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafValues, LinearStep
from fedcircuits.circuits.evaluation.lookup import LookupValues
from fedcircuits.circuits.evaluation.pairs import FamilyPart
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed, Values
from fedcircuits.circuits.evaluation.statistics import Frame, Inputs
from fedcircuits.circuits.evaluation.step import Frames
from fedcircuits.circuits.graph.family import Array, Arrays, Domain
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema

SMALLEST = 1e-12


def free(value: Tensor, domain: Domain) -> Tensor:
    """The free numbers of a parameter."""
    if domain == "positive":
        return torch.log(value.clamp_min(SMALLEST))
    if domain == "unit":
        return torch.logit(value, SMALLEST)
    if domain == "covariance":
        root: Tensor = torch.linalg.cholesky(value)
        return root.tril(-1) + torch.diag_embed(root.diagonal(dim1=-2, dim2=-1).log())
    return torch.log(value.clamp_min(SMALLEST)) if domain == "simplex" else value


def bound(value: Tensor, domain: Domain) -> Tensor:
    """The parameter of free numbers."""
    if domain == "positive":
        return torch.exp(value)
    if domain == "unit":
        return torch.sigmoid(value)
    if domain == "covariance":
        root = value.tril(-1) + torch.diag_embed(value.diagonal(dim1=-2, dim2=-1).exp())
        return root @ root.mT
    return torch.softmax(value, -1) if domain == "simplex" else value


class Differentiable(nn.Module):
    """log p(x) with a gradient by everything that is learned, and by the real values of x:
    ``model(x).mean().backward()``."""

    def __init__(self, program: CircuitProgram, parameters: Parameters) -> None:
        super().__init__()
        self.program = program
        self.start = program.pack(parameters)
        self.numbers = nn.ParameterDict()
        self.register_buffer("place", torch.empty(0, device=program.device), persistent=False)
        with here(program.device):
            self._free_numbers()

    def _free_numbers(self) -> None:
        program = self.program
        for i, (step, values) in enumerate(zip(program.steps, self.start.values, strict=True)):
            if isinstance(values, Tensor):
                self.numbers[f"{i}"] = torch.log(values.clamp_min(SMALLEST)) - 1e4 * (values == 0)
            elif isinstance(values, LookupValues):
                self.numbers[f"{i}"] = values.logs().clamp_min(np.log(SMALLEST))
            elif isinstance(values, LeafValues) and isinstance(step, LinearStep | DirectStep):
                for j, name, domain, array in self._trained(step, values):
                    self.numbers[f"{i}/{j}/{name}"] = free(array.to(program.dtype), domain)
            elif isinstance(values, JointValues) and isinstance(step, JointStep):
                for name, domain in step.rule.domains.items():
                    exact = torch.as_tensor(np.array(values.arrays[name]))
                    self.numbers[f"{i}/{name}"] = free(exact, domain).to(program.dtype)

    def _trained(
        self, step: LinearStep | DirectStep, values: LeafValues
    ) -> Iterator[tuple[int, str, Domain, Tensor]]:
        for j, part in enumerate(values.parts):
            for name, array in self._seen(step, part).items():
                domain = part.rule.domains.get(name, "fixed")
                if domain != "fixed":
                    yield j, name, domain, torch.as_tensor(np.ascontiguousarray(array))

    # ------------------------------------------------------------------ parameters

    def _part(
        self, i: int, j: int, part: FamilyPart, arrays: Mapping[str, Array]
    ) -> dict[str, Tensor]:
        """The parameters of a part as functions of the free numbers."""
        tensors = {}
        for name, array in arrays.items():
            key, domain = f"{i}/{j}/{name}", part.rule.domains.get(name, "fixed")
            fixed = torch.as_tensor(np.ascontiguousarray(array)).to(self.program.dtype)
            tensors[name] = bound(self.numbers[key], domain) if key in self.numbers else fixed
        return tensors

    def _joint(self, i: int, step: JointStep, values: JointValues) -> dict[str, Tensor]:
        """The same of a leaf of a joint family."""
        trained = {n: bound(self.numbers[f"{i}/{n}"], d) for n, d in step.rule.domains.items()}
        return {**values.tensors, **trained}

    def _tensors(self, inputs: Inputs) -> Iterator[Tensor]:
        """What the operation depends on: free numbers of weights and tables; coefficients and
        constants; rows of values."""
        for i, (step, values) in enumerate(zip(self.program.steps, self.start.values, strict=True)):
            if isinstance(values, Tensor | LookupValues):
                yield self.numbers[f"{i}"]
            elif isinstance(step, LinearStep) and isinstance(values, LeafValues):
                parts = [
                    self._part(i, j, p, step.framed(p, self.start.frames))
                    for j, p in enumerate(values.parts)
                ]
                yield from step.operand(values.parts, parts, self.start.frames)
            elif isinstance(step, DirectStep) and isinstance(values, LeafValues):
                parts = [self._part(i, j, p, p.arrays) for j, p in enumerate(values.parts)]
                yield step.log_values(values.parts, parts, inputs)
            elif isinstance(step, JointStep) and isinstance(values, JointValues):
                yield step.log_values(self._joint(i, step, values), inputs.x)

    @property
    def device(self) -> torch.device:
        return self.program.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """``to``, ``cuda`` and ``cpu`` of torch: what is fixed moves along with what is learned."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        place = self.get_buffer("place").device
        if place != self.device:
            old = self.program.unpack(self.start)
            self.program = CircuitProgram(self.program.circuit, self.program.dtype, place)
            self._begin(old, self.start.frames)
        return self

    @placed
    def _begin(self, parameters: Parameters, frames: Frames) -> None:
        steps = (s.pack(parameters, frames, self.program.dtype) for s in self.program.steps)
        self.start = Packed(frames, tuple(steps))

    @placed
    def forward(self, x: Tensor) -> Tensor:
        columns = len(self.program.circuit.schema)
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != columns:
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise QueryError(f"expected a tensor of shape (rows, {columns}), got {found}")
        if x.device != self.device:
            raise QueryError(
                f"this circuit is on {self.device}, the rows are on {x.device}: move one of them, "
                f'by x.to("{self.device}") or module.to("{x.device}")'
            )
        for tensor in self.parameters():
            if tensor.dtype != self.program.dtype:
                raise QueryError(
                    f"this circuit computes in {self.program.dtype}, its parameters became "
                    f"{tensor.dtype}: make it anew by to_module, with double=True for double "
                    "precision"
                )
        inputs = self.program.read(x.detach(), self.start)
        log_likelihood: Tensor = _LogLikelihood.apply(  # type: ignore[no-untyped-call]
            self, inputs, x, *self._tensors(inputs)
        )
        return log_likelihood

    def get_extra_state(self) -> dict[str, Tensor]:
        return {
            f"{rule}/{levels}": torch.from_numpy(np.stack([frame.shift, frame.scale]))
            for (rule, levels), frame in self.start.frames.items()
        }

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        frames: dict[tuple[str, int], Frame] = {}
        for key, both in state.items():
            rule, _, levels = key.rpartition("/")
            shift, scale = both.double().cpu().numpy()
            frames[rule, int(levels)] = Frame(shift, scale)
        self._begin(self.program.unpack(self.start), frames)

    @placed
    @torch.no_grad()
    def packed(self) -> Packed:
        """Where training stands, for queries and to save."""
        new: list[Values] = []
        for i, (step, values) in enumerate(zip(self.program.steps, self.start.values, strict=True)):
            if isinstance(values, Tensor):
                new.append(torch.softmax(self.numbers[f"{i}"], -1) * (values > 0))
            elif isinstance(values, LookupValues):
                new.append(values.with_table(torch.softmax(self.numbers[f"{i}"], 1)))
            elif isinstance(values, LeafValues) and isinstance(step, LinearStep | DirectStep):
                new.append(self._learned(i, step, values))
            elif isinstance(step, JointStep) and isinstance(values, JointValues):
                tensors = self._joint(i, step, values)
                learned = {n: tensors[n].double().cpu().numpy() for n in step.rule.domains}
                new.append(step.from_arrays({**values.arrays, **learned}, self.program.dtype))
            else:
                new.append(values)
        return Packed(self.start.frames, tuple(new))

    def _learned(self, i: int, step: LinearStep | DirectStep, values: LeafValues) -> LeafValues:
        parts = []
        for j, part in enumerate(values.parts):
            tensors = self._part(i, j, part, self._seen(step, part))
            arrays: Arrays = {n: t.double().cpu().numpy() for n, t in tensors.items()}
            if isinstance(step, LinearStep):
                arrays = step.unframed(part, arrays, self.start.frames)
            parts.append(replace(part, arrays=arrays))
        if isinstance(step, DirectStep):
            return step.from_parts(tuple(parts), self.program.dtype)
        return step.from_parts(tuple(parts), self.start.frames, self.program.dtype)

    def _seen(self, step: LinearStep | DirectStep, part: FamilyPart) -> Arrays:
        """Parameters as training sees them: linear leaves in their frame."""
        return step.framed(part, self.start.frames) if isinstance(step, LinearStep) else part.arrays


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx, model, inputs, x, *tensors):  # type: ignore[no-untyped-def]
        program, shape = model.program, (model.program.layout.rows, len(inputs.x))
        with here(program.device):
            ctx.room = Loan(program.scratch)  # until torch's graph is given up
            ctx.model, ctx.packed = model, _repacked(model, tensors, ctx.room)
            values = ctx.room.matrix("values", shape, program.dtype)
        ctx.state, log_values = program.ascend(inputs, ctx.packed, values)
        return log_values

    @staticmethod
    def backward(ctx, weight):  # type: ignore[no-untyped-def]
        program, x = ctx.model.program, ctx.state.inputs.x
        with here(program.device):
            shape = tuple(ctx.state.values.shape)
            gradient = ctx.room.matrix("gradient", shape, program.dtype)
            derivatives = program.descend(ctx.state, ctx.packed, weight, gradient, free=True)
            out = _by_tensors(program, derivatives, gradient)
            by_rows = None
            if ctx.needs_input_grad[2]:
                by_rows = _by_inputs(program, ctx.model.packed(), x, gradient)
        return (None, None, by_rows, *out)


def _by_tensors(
    program: CircuitProgram, derivatives: list[Derivative], gradient: Tensor
) -> list[Tensor]:
    """Derivatives by what the operation depends on."""
    out = []
    for step, derivative in zip(program.steps, derivatives, strict=True):
        if isinstance(derivative, Tensor):
            out.append(derivative)
        elif isinstance(step, LinearStep) and isinstance(derivative, LeafCounts):
            out += [derivative.sums, derivative.count]
        elif isinstance(step, DirectStep):
            out.append(step.rows_in(gradient).flatten(0, 1).clone())
        elif isinstance(step, JointStep):
            out.append(step.rows_in(gradient)[0].clone())
    return out


def _by_inputs(program: CircuitProgram, packed: Packed, x: Tensor, gradient: Tensor) -> Tensor:
    """d objective / d x (rows, variables): posteriors of leaf units times d log density / d x.

    Of a value that is missing, and of categories, booleans and counts, it is zero.
    """
    total = torch.zeros_like(x)
    for step, values in zip(program.steps, packed.values, strict=True):
        if isinstance(step, JointStep) and isinstance(values, JointValues):
            with torch.enable_grad():
                rows = x.detach().requires_grad_()
                logs = step.log_values(values.tensors, rows)
                [slope] = torch.autograd.grad((logs * step.rows_in(gradient)[0]).sum(), rows)
            total += slope.nan_to_num(nan=0.0)
        if isinstance(step, LinearStep | DirectStep) and isinstance(values, LeafValues):
            posterior = step.rows_in(gradient)
            for part in values.parts:
                _add_slopes(step, part, posterior, program.circuit.schema, x, total)
    return total


def _add_slopes(
    step: LinearStep | DirectStep,
    part: FamilyPart,
    posterior: Tensor,
    schema: Schema,
    x: Tensor,
    total: Tensor,
) -> None:
    variables = step.pairs.variable[part.pairs]
    real = torch.tensor([not schema.variables[int(v)].discrete for v in variables])
    if not bool(real.any()):
        return
    tensors = {n: torch.as_tensor(a).unsqueeze(2)[real] for n, a in part.arrays.items()}
    at = variables[real]
    rows = x.t()[at].double()
    seen = ~torch.isnan(rows)
    with torch.enable_grad():
        value = torch.where(seen, rows, 0.0).requires_grad_()
        logs = part.rule.log_density(value[:, None], tensors)  # (pairs, units, batch)
        weight = posterior[step.pairs.slot[part.pairs[real]]].double() * seen[:, None]
        [slope] = torch.autograd.grad((logs * weight).sum(), value)
    total.index_add_(1, at, slope.t().to(total.dtype))


def _repacked(model: Differentiable, tensors: tuple[Tensor, ...], room: Loan) -> Packed:
    """Packed parameters with the given tensors in place; weights and tables are made in room that
    is kept from one step to the next."""
    left, dtype, at = iter(tensors), model.program.dtype, 0
    number = sum(old.numel() for old in model.start.values if isinstance(old, Tensor))
    weights = room.matrix("weights", (1, number), dtype)[0]
    values: list[Values] = []
    for i, (step, old) in enumerate(zip(model.program.steps, model.start.values, strict=True)):
        if isinstance(old, Tensor):
            out = weights[at : at + old.numel()].view(old.shape)
            values.append(torch.softmax(next(left), -1, out=out))
            at += old.numel()
        elif isinstance(old, LookupValues):
            out = room.matrix(f"table {i}", (1, old.table.numel()), dtype).view(old.table.shape)
            values.append(old.with_table(torch.softmax(next(left), 1, out=out)))
        elif isinstance(step, LinearStep) and isinstance(old, LeafValues):
            values.append(replace(old, coefficients=next(left), constants=next(left)))
        elif isinstance(step, DirectStep) and isinstance(old, LeafValues):
            values.append(replace(old, known=next(left)))
        elif isinstance(old, JointValues):
            values.append(replace(old, known=next(left)))
        else:
            values.append(old)
    return Packed(model.start.frames, tuple(values), weights=[weights])
