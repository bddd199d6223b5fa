//! A graph builder with the layers of networks. Weights are `Random` constants, so building computes only shapes.

use models::builder::GraphBuilder;
use models::error::{Error, Result};
use models::graph::{Const, Graph, ValueId};
use models::operators::{
    BatchNorm, BiasAdd, Binary, BinaryOp, Clip, Concat, Conv, ConvTranspose, Dense, Flatten, GlobalPool, Identity, Op,
    Pool, PoolMode, Reshape, Slice, Transpose, Unary, UnaryOp,
};
use models::types::{Dim, TensorType};

pub(super) const RELU6: Op = Op::Clip(Clip { low: 0.0, high: 6.0 });
pub(super) const RELU: Op = Op::Unary(Unary { function: UnaryOp::Relu });

pub struct Net {
    builder: GraphBuilder,
    seed: u64,
}

#[derive(Clone)]
pub(super) struct ConvLayer {
    out: i64,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    pads: Vec<i64>,
    groups: i64,
    has_bias: bool,
}

/// Returns a convolution layer with stride 1 and no padding.
pub(super) fn conv_layer(out: i64, kernel: &[i64]) -> ConvLayer {
    let rank = kernel.len();
    ConvLayer { out, kernel: kernel.to_vec(), strides: vec![1; rank], pads: vec![0; rank], groups: 1, has_bias: false }
}

/// Returns a convolution layer with a square kernel, and padding that preserves the extents at stride 1.
pub(super) fn same_conv(out: i64, kernel: i64) -> ConvLayer {
    conv_layer(out, &[kernel; 2]).with_pads(&[(kernel - 1) / 2; 2])
}

impl ConvLayer {
    pub(super) fn with_stride(mut self, strides: &[i64]) -> ConvLayer {
        self.strides = strides.to_vec();
        self
    }

    pub(super) fn with_pads(mut self, pads: &[i64]) -> ConvLayer {
        self.pads = pads.to_vec();
        self
    }

    pub(super) fn with_groups(mut self, groups: i64) -> ConvLayer {
        self.groups = groups;
        self
    }

    pub(super) fn with_bias(mut self) -> ConvLayer {
        self.has_bias = true;
        self
    }
}

impl Net {
    pub(super) fn new(name: &str) -> Net {
        Net { builder: GraphBuilder::new(name), seed: 0 }
    }

    pub(super) fn add_input(&mut self, name: &str, extents: &[i64]) -> Result<ValueId> {
        self.builder.add_input(name, TensorType::f32(extents))
    }

    pub(super) fn finish(self, outputs: &[ValueId]) -> Result<Graph> {
        self.builder.finish(outputs)
    }

    pub(super) fn scoped_builder(&mut self, scope: &str) -> &mut GraphBuilder {
        self.builder.set_scope(scope);
        &mut self.builder
    }

    pub(super) fn push_op(&mut self, scope: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.scoped_builder(scope).push(op, inputs)
    }

    pub(super) fn add_weight(&mut self, name: &str, extents: &[i64]) -> Result<ValueId> {
        self.seed += 1;
        self.builder.add_constant(name, TensorType::f32(extents), Const::Random { seed: self.seed })
    }

    pub(super) fn extents(&self, x: ValueId) -> Result<Vec<i64>> {
        let ty = self.builder.value_type(x)?;
        ty.extents().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "extents" })
    }

    pub(super) fn channel_count(&self, x: ValueId) -> Result<i64> {
        match self.builder.value_type(x)?.shape.get(1) {
            Some(Dim::Known(channels)) => Ok(*channels),
            _ => Err(Error::Symbolic { ty: self.builder.value_type(x)?.to_string(), what: "channels" }),
        }
    }

    pub(super) fn conv(&mut self, scope: &str, x: ValueId, layer: &ConvLayer) -> Result<ValueId> {
        let mut filter = vec![layer.out, self.channel_count(x)? / layer.groups];
        filter.extend(&layer.kernel);
        let w = self.add_weight(&format!("{scope}.weight"), &filter)?;
        let op = Op::Conv(Conv {
            strides: layer.strides.clone(),
            pads: [layer.pads.as_slice(), &layer.pads].concat(),
            dilations: vec![1; layer.kernel.len()],
            groups: layer.groups,
        });
        let y = self.push_op(scope, op, &[x, w])?;
        if layer.has_bias { self.add_bias(scope, y) } else { Ok(y) }
    }

    pub(super) fn conv_norm(&mut self, scope: &str, x: ValueId, layer: &ConvLayer, epsilon: f64) -> Result<ValueId> {
        let x = self.conv(&format!("{scope}.conv"), x, layer)?;
        self.batch_norm(&format!("{scope}.bn"), x, epsilon)
    }

    pub(super) fn conv_norm_act(
        &mut self,
        scope: &str,
        x: ValueId,
        layer: &ConvLayer,
        epsilon: f64,
        activation: &Op,
    ) -> Result<ValueId> {
        let x = self.conv_norm(scope, x, layer, epsilon)?;
        self.push_op(&format!("{scope}.act"), activation.clone(), &[x])
    }

    pub(super) fn squeeze_excite(
        &mut self,
        scope: &str,
        x: ValueId,
        squeezed: i64,
        activation: UnaryOp,
        gate: UnaryOp,
    ) -> Result<ValueId> {
        let channels = self.channel_count(x)?;
        let mean =
            self.push_op(&format!("{scope}.avgpool"), Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[x])?;
        let y = self.conv(&format!("{scope}.fc1"), mean, &same_conv(squeezed, 1).with_bias())?;
        let y = self.unary(&format!("{scope}.activation"), y, activation)?;
        let y = self.conv(&format!("{scope}.fc2"), y, &same_conv(channels, 1).with_bias())?;
        let y = self.unary(&format!("{scope}.scale_activation"), y, gate)?;
        self.binary(&format!("{scope}.scale"), BinaryOp::Mul, x, y)
    }

    fn add_bias(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let channels = self.channel_count(x)?;
        let bias = self.add_weight(&format!("{scope}.bias"), &[channels])?;
        self.push_op(scope, Op::BiasAdd(BiasAdd { axis: 1 }), &[x, bias])
    }

    pub(super) fn batch_norm(&mut self, scope: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        let channels = self.channel_count(x)?;
        let mut inputs = vec![x];
        for name in ["weight", "bias", "running_mean", "running_var"] {
            inputs.push(self.add_weight(&format!("{scope}.{name}"), &[channels])?);
        }
        self.push_op(scope, Op::BatchNorm(BatchNorm { epsilon }), &inputs)
    }

    pub(super) fn conv_transpose(
        &mut self,
        scope: &str,
        x: ValueId,
        out: i64,
        [kernel, stride, pad]: [i64; 3],
        has_bias: bool,
    ) -> Result<ValueId> {
        let filter = [self.channel_count(x)?, out, kernel, kernel];
        let w = self.add_weight(&format!("{scope}.weight"), &filter)?;
        let op = Op::ConvTranspose(ConvTranspose {
            strides: vec![stride; 2],
            pads: vec![pad; 4],
            output_pads: vec![0; 2],
            dilations: vec![1; 2],
            groups: 1,
        });
        let y = self.push_op(scope, op, &[x, w])?;
        if has_bias { self.add_bias(scope, y) } else { Ok(y) }
    }

    pub(super) fn dense(&mut self, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
        let extents = self.extents(x)?;
        let w = self.add_weight(&format!("{scope}.weight"), &[out, extents[extents.len() - 1]])?;
        let bias = self.add_weight(&format!("{scope}.bias"), &[out])?;
        let y = self.push_op(scope, Op::Dense(Dense {}), &[x, w])?;
        self.push_op(scope, Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias])
    }

    pub(super) fn unary(&mut self, scope: &str, x: ValueId, function: UnaryOp) -> Result<ValueId> {
        self.push_op(scope, Op::Unary(Unary { function }), &[x])
    }

    pub(super) fn relu(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        self.unary(scope, x, UnaryOp::Relu)
    }

    pub(super) fn binary(&mut self, scope: &str, function: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.push_op(scope, Op::Binary(Binary { function }), &[a, b])
    }

    pub(super) fn add(&mut self, scope: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(scope, BinaryOp::Add, a, b)
    }

    pub(super) fn max_pool(&mut self, scope: &str, x: ValueId, kernel: i64, stride: i64, pad: i64) -> Result<ValueId> {
        self.add_pool(scope, x, PoolMode::Max, [kernel, stride, pad], false)
    }

    /// Adds an average pool; `window` is kernel, stride, padding. Averages include padding, as in training frameworks.
    pub(super) fn average_pool(&mut self, scope: &str, x: ValueId, window: [i64; 3]) -> Result<ValueId> {
        self.add_pool(scope, x, PoolMode::Average, window, false)
    }

    pub(super) fn add_pool(
        &mut self,
        scope: &str,
        x: ValueId,
        mode: PoolMode,
        [kernel, stride, pad]: [i64; 3],
        ceil: bool,
    ) -> Result<ValueId> {
        let rank = self.builder.value_type(x)?.rank().saturating_sub(2);
        let op = Op::Pool(Pool {
            mode,
            kernel: vec![kernel; rank],
            strides: vec![stride; rank],
            pads: vec![pad; 2 * rank],
            dilations: vec![1; rank],
            ceil,
            count_pad: mode == PoolMode::Average,
        });
        self.push_op(scope, op, &[x])
    }

    pub(super) fn concat(&mut self, scope: &str, parts: &[ValueId]) -> Result<ValueId> {
        self.push_op(scope, Op::Concat(Concat { axis: 1 }), parts)
    }

    pub(super) fn dropout(&mut self, x: ValueId) -> Result<ValueId> {
        self.push_op("dropout", Op::Identity(Identity {}), &[x])
    }

    /// Adds a slice of one dimension; `stop` is exclusive.
    pub(super) fn slice(&mut self, scope: &str, x: ValueId, axis: i64, start: i64, stop: i64) -> Result<ValueId> {
        let op = Op::Slice(Slice { axes: vec![axis], starts: vec![start], stops: vec![stop], steps: vec![1] });
        self.push_op(scope, op, &[x])
    }

    pub(super) fn reshape(&mut self, scope: &str, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        self.push_op(scope, Op::Reshape(Reshape { shape: shape.to_vec() }), &[x])
    }

    pub(super) fn transpose(&mut self, scope: &str, x: ValueId, permutation: &[i64]) -> Result<ValueId> {
        self.push_op(scope, Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[x])
    }

    /// Adds the mean of each channel, as `[batch, channels]`.
    pub(super) fn channel_means(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let mean = self.push_op(scope, Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[x])?;
        self.flatten(mean)
    }

    pub(super) fn flatten(&mut self, x: ValueId) -> Result<ValueId> {
        self.push_op("flatten", Op::Flatten(Flatten { axis: 1 }), &[x])
    }
}
