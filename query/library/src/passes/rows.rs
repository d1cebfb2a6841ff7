//! The rows that a pass emits, column by column.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, ListBuilder, RecordBatch,
    RecordBatchOptions, StringViewBuilder, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::error::{DataFusionError, Result};

/// Number of rows in a batch.
pub(super) const ROWS: usize = 8192;

/// Rows with the requested columns only: values of the others are dropped.
pub(crate) struct Rows {
    schema: SchemaRef,
    /// For each column of the pass, its place among those requested.
    places: Vec<Option<usize>>,
    builders: Vec<Builder>,
    count: usize,
    /// Name of the trace, and the place of its column.
    trace: Option<(String, usize)>,
}

enum Builder {
    Int32(Int32Builder),
    Int64(Int64Builder),
    UInt64(UInt64Builder),
    Float64(Float64Builder),
    Flag(BooleanBuilder),
    Text(StringViewBuilder),
    Texts(ListBuilder<StringViewBuilder>),
}

impl Builder {
    fn new(kind: &DataType) -> Result<Builder> {
        Ok(match kind {
            DataType::Int32 => Builder::Int32(Int32Builder::with_capacity(ROWS)),
            DataType::Int64 => Builder::Int64(Int64Builder::with_capacity(ROWS)),
            DataType::UInt64 => Builder::UInt64(UInt64Builder::with_capacity(ROWS)),
            DataType::Float64 => Builder::Float64(Float64Builder::with_capacity(ROWS)),
            DataType::Boolean => Builder::Flag(BooleanBuilder::with_capacity(ROWS)),
            DataType::Utf8View => Builder::Text(StringViewBuilder::with_capacity(ROWS)),
            DataType::List(item) => Builder::Texts(
                ListBuilder::new(StringViewBuilder::new()).with_field(Arc::clone(item)),
            ),
            other => {
                let text = format!("a pass cannot emit a column of type {other}");
                return Err(DataFusionError::Internal(text));
            }
        })
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Int32(builder) => Arc::new(builder.finish()),
            Builder::Int64(builder) => Arc::new(builder.finish()),
            Builder::UInt64(builder) => Arc::new(builder.finish()),
            Builder::Float64(builder) => Arc::new(builder.finish()),
            Builder::Flag(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Texts(builder) => Arc::new(builder.finish()),
        }
    }
}

impl Rows {
    /// `requested` are indices of `fields`, whose last one is the name of the trace if there are several.
    pub(super) fn new(
        fields: &SchemaRef,
        requested: &[usize],
        trace: Option<&str>,
    ) -> Result<Rows> {
        let mut places = vec![None; fields.fields().len()];
        for (place, &column) in requested.iter().enumerate() {
            places[column] = Some(place);
        }
        let schema = Arc::new(fields.project(requested)?);
        let builders = schema
            .fields()
            .iter()
            .map(|field| Builder::new(field.data_type()));
        let last = places.last().copied().flatten();
        Ok(Rows {
            builders: builders.collect::<Result<_>>()?,
            schema,
            trace: trace.map(str::to_owned).zip(last),
            places,
            count: 0,
        })
    }

    #[inline]
    fn builder(&mut self, column: usize) -> Option<&mut Builder> {
        let place = (*self.places.get(column)?)?;
        self.builders.get_mut(place)
    }

    /// Whether a column is requested.
    pub(crate) fn wants(&self, column: usize) -> bool {
        self.places.get(column).is_some_and(Option::is_some)
    }

    /// Sets an integer of the current row.
    #[inline]
    pub(crate) fn integer(&mut self, column: usize, value: Option<i64>) {
        match self.builder(column) {
            Some(Builder::Int64(builder)) => builder.append_option(value),
            Some(Builder::Int32(builder)) => {
                builder.append_option(value.and_then(|value| i32::try_from(value).ok()));
            }
            // Addresses are bit patterns.
            Some(Builder::UInt64(builder)) => {
                builder.append_option(value.map(i64::cast_unsigned));
            }
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn id(&mut self, column: usize, value: Option<i32>) {
        self.integer(column, value.map(i64::from));
    }

    #[inline]
    pub(crate) fn text(&mut self, column: usize, value: Option<&str>) {
        if let Some(Builder::Text(builder)) = self.builder(column) {
            builder.append_option(value);
        }
    }

    pub(crate) fn flag(&mut self, column: usize, value: Option<bool>) {
        if let Some(Builder::Flag(builder)) = self.builder(column) {
            builder.append_option(value);
        }
    }

    pub(crate) fn float(&mut self, column: usize, value: Option<f64>) {
        if let Some(Builder::Float64(builder)) = self.builder(column) {
            builder.append_option(value);
        }
    }

    pub(crate) fn texts<'t>(
        &mut self,
        column: usize,
        values: Option<impl Iterator<Item = &'t str>>,
    ) {
        if let Some(Builder::Texts(builder)) = self.builder(column) {
            let is_known = values.is_some();
            for value in values.into_iter().flatten() {
                builder.values().append_value(value);
            }
            builder.append(is_known);
        }
    }

    /// Completes the current row, of which every requested column must be set.
    #[inline]
    pub(crate) fn end_row(&mut self) {
        if let Some((trace, place)) = &self.trace
            && let Some(Builder::Text(builder)) = self.builders.get_mut(*place)
        {
            builder.append_value(trace);
        }
        self.count += 1;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count >= ROWS
    }

    /// Returns the rows so far, if any.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.count == 0 {
            return Ok(None);
        }
        let columns = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        self.count = 0;
        let schema = Arc::clone(&self.schema);
        Ok(Some(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?))
    }
}

/// Type of an emitted column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emits {
    Int32,
    Int64,
    Float,
    Flag,
    Text,
    /// A list of strings.
    Texts,
    Address,
    /// The ID of a stack.
    Stack,
}

/// Declares the columns that a pass emits: a constant with the index of each, and `fields(id)`.
///
/// ```text
/// emitted! { TIME "time" Int64, COMM "comm" Text }
/// ```
macro_rules! emitted {
    ($($index:ident $name:literal $kind:ident),+ $(,)?) => {
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Emitted { $($index),+ }
        $(const $index: usize = Emitted::$index as usize;)+

        fn fields(id: &arrow::datatypes::DataType) -> Vec<arrow::datatypes::Field> {
            use $crate::passes::rows::{Emits, field};
            vec![$(field($name, Emits::$kind, id)),+]
        }
    };
}
pub(super) use emitted;

/// A column of a pass; all may be NULL.
pub(super) fn field(name: &str, kind: Emits, id: &DataType) -> Field {
    let kind = match kind {
        Emits::Int32 => DataType::Int32,
        Emits::Int64 => DataType::Int64,
        Emits::Float => DataType::Float64,
        Emits::Flag => DataType::Boolean,
        Emits::Text => DataType::Utf8View,
        Emits::Texts => DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true))),
        Emits::Address => DataType::UInt64,
        Emits::Stack => id.clone(),
    };
    Field::new(name, kind, true)
}
