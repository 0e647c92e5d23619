"""A coffee wholesaler: fifty orders, checked against stock, charged, invoiced and handed to a carrier.

data/        products, customers, orders
shop         reads them, strictly
actions      orders.check_stock (pure) and carrier.book (keyed)
carrier      the other side: a parcel service that remembers idempotency keys
planner      orders.fulfil: one order becomes one plan
demo         runs it all, kills a worker half way, and checks the books: python -m examples.orders.demo
"""
