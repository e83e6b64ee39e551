"""ReLU networks with several outputs from Jacobians that several critical points share, and from the positive orthant.

Along a line, a critical point changes the Jacobian of the outputs by ``u n^T``, with u the change of the slope, which
the line shows, and n the normal of the boundary. One Jacobian therefore serves as many critical points as there are
outputs. Once the first layer is known and not wider than the input, inputs exist at which its units have any positive
values: there the rest is a network with one layer less.
"""
