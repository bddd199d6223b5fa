//! Numbers by row: what learners take.

/// Rows of numbers, each as long as the others; not-a-number is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// Creates an empty matrix with this many columns.
    pub fn new(columns: usize) -> Matrix {
        Matrix { columns, values: Vec::new() }
    }

    /// The rows that lie in `values` one after the other.
    pub fn of(columns: usize, values: Vec<f32>) -> Matrix {
        assert!(columns > 0 && values.len().is_multiple_of(columns), "{} values, {columns} columns", values.len());
        Matrix { columns, values }
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.columns, "rows are equally long");
        self.values.extend_from_slice(row);
    }

    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Numbers in a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// All numbers, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Some rows, in the order given.
    pub fn select(&self, rows: &[usize]) -> Matrix {
        let mut chosen = Matrix { columns: self.columns, values: Vec::with_capacity(rows.len() * self.columns) };
        rows.iter().for_each(|row| chosen.push(self.row(*row)));
        chosen
    }

    /// Some columns, in the order given.
    pub fn project(&self, columns: &[usize]) -> Matrix {
        let values = (0..self.rows()).flat_map(|row| columns.iter().map(move |column| self.row(row)[*column]));
        Matrix { columns: columns.len(), values: values.collect() }
    }

    /// Replaces one number.
    pub fn set(&mut self, row: usize, column: usize, value: f32) {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.values[row * self.columns + column] = value;
    }
}
