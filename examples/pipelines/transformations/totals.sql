-- Streaming SQL over a table of the Python file.
CREATE STREAMING TABLE order_times AS
SELECT CAST(key AS STRING) AS customer, event_time FROM STREAM orders;

CREATE MATERIALIZED VIEW per_customer AS
SELECT customer, sum(orders) AS orders, sum(amount) AS amount FROM per_minute GROUP BY customer;
