//! Row-major matrix: the input of learners.

/// Rows of equal length; NaN marks missing values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    pub fn new(columns: usize) -> Matrix {
        Matrix { columns, values: Vec::new() }
    }

    pub fn with_capacity(columns: usize, rows: usize) -> Matrix {
        Matrix { columns, values: Vec::with_capacity(columns * rows) }
    }

    pub fn from_rows(columns: usize, values: Vec<f32>) -> Matrix {
        assert!(columns > 0 && values.len().is_multiple_of(columns), "{} values, {columns} columns", values.len());
        Matrix { columns, values }
    }

    pub fn push_row(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.columns, "rows are equally long");
        self.values.extend_from_slice(row);
    }

    pub fn row_count(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    pub fn column_count(&self) -> usize {
        self.columns
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub fn select_rows(&self, rows: &[usize]) -> Matrix {
        let mut chosen = Matrix { columns: self.columns, values: Vec::with_capacity(rows.len() * self.columns) };
        rows.iter().for_each(|row| chosen.push_row(self.row(*row)));
        chosen
    }

    pub fn select_columns(&self, columns: &[usize]) -> Matrix {
        let values = (0..self.row_count()).flat_map(|row| columns.iter().map(move |column| self.row(row)[*column]));
        Matrix { columns: columns.len(), values: values.collect() }
    }

    pub fn set(&mut self, row: usize, column: usize, value: f32) {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.values[row * self.columns + column] = value;
    }
}
