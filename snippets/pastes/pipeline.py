"""A pipeline with 1F1B: each rank has one stage, the first the rows, and the last the loss."""

from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def pipeline(stage, group, micro_batches, loss_of):
    device = next(stage.parameters()).device
    part = PipelineStage(stage, group.rank(), group.size(), device, group=group)
    schedule = Schedule1F1B(part, micro_batches, loss_fn=loss_of)

    def step(rows, targets):
        losses = []
        inputs = [rows] if part.is_first else []
        given = {"target": targets, "losses": losses} if part.is_last else {}
        schedule.step(*inputs, **given)  # forward and backward passes of all parts
        return [loss.detach() for loss in losses]

    return step
