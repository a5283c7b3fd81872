"""The tables, the transaction, and one repository per aggregate. Nothing here decides anything."""
