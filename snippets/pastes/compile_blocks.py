"""Compile the equal blocks of a model in place; names and weights stay as they are."""


def compile_blocks(blocks, **options):
    for block in blocks:
        block.compile(**options)  # the first step compiles; equal blocks share it
