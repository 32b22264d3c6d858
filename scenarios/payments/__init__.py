"""A shop: changes of tables, logins from a topic, alerts to three places."""
