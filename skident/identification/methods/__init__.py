"""The methods of identification: one module with one entry point each."""
