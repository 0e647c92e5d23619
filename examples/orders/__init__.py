"""A coffee wholesaler: fifty orders, checked against stock, charged, invoiced and handed to a carrier.

data/        products, customers, orders
shop         reads them, strictly
actions      orders.check_stock (pure) and carrier.book (keyed)
carrier      the other side: a parcel service that remembers idempotency keys
planner      orders.fulfil: one order becomes one plan; orders.print: one plan for the invoices of a day
press        has them printed by a command, where a sandbox for it works
demo         runs it all, kills a worker half way, and checks the books: python -m examples.orders.demo
"""
